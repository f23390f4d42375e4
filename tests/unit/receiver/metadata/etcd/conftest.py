from tests.support.etcd import own_etcd, shared_etcd

__all__ = ["own_etcd", "shared_etcd"]
