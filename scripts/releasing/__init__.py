"""Makes what is installed: packages, a bundle for machines without a network, an image's recipe.

`scripts/release` runs it. All of it is made of one wheel of tsferry and the wheels of the locks in
`locks/`, by architecture and version of Python, on any machine with `dpkg-deb`: nothing is run that
was made for another processor. The same commit gives the same bytes.

Not called `packaging`: programs of `scripts/` have that folder on their path, and a library has the
name.
"""
