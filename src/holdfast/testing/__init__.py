"""For our tests, for `holdfast bench`, and for the tests of anyone who builds on Holdfast."""
