"""The web page for the people who run a receiver, at `/ui/`: made here, read by any browser.

`screens` has a module a page, with its template in `templates`, `actions` what can be done from
them, `drawing` how they are drawn; `page_call` is what a handler sees, `page_routes` how it is
entered. What is shown and done comes from `receiver.operator`, as what the commands show and do.
There is no script, no build, and nothing is fetched from elsewhere.
"""
