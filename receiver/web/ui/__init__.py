"""The web page for the people who run a receiver, at `/ui/`: made here, read by any browser.

One module a subject, with its template beside; `page_call` is what a handler sees, `page_routes`
how it is entered. What is shown and done comes from `receiver.operator`, as what the commands show
and do. There is no script, no build, and nothing is fetched from elsewhere.
"""
