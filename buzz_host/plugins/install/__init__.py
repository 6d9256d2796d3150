"""Installing plugins: fetched, checked whole, put into a store by the hash of their content, and locked (CAT-02).

Nothing is ever unpacked or checked out by somebody else's program: a tree is listed, the listing is judged, and only
then are the files of one plugin read, into memory. What is judged there is what is written, and what is loaded later.
"""
