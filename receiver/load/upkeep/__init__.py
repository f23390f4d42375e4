"""What the receiver does by itself: expiry, reaping, checking, late registration."""
