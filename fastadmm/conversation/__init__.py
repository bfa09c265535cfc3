"""One conversation: what the coordinator asks of parties, in one table, carried by whichever driver.

The coordinator does no input or output. What speaks to parties is a *talk*
(:mod:`fastadmm.conversation.exchange`): a generator that yields exchanges and is
sent the answers, in the order of the calls. A *driver* carries exchanges: threads of this process
(:mod:`fastadmm.conversation.exchange`), or files (:mod:`fastadmm.between`). Every call and its answer stand
in :data:`fastadmm.conversation.calls.CALLS`, and every party answers
``answer(name, arguments)`` (:mod:`fastadmm.conversation.answering`).

Rules
-----
- A call whose answer is empty *tells* something. It makes no message of its own: by files it travels with
  that party's next request, and its effect is there before that request's last call is answered. The
  driver sends the talk an empty dictionary at once.
- Calls of one exchange do not wait for each other, so their answers must not depend on each other's
  order. An exchange asks a party for one answer at most.
- An answer depends on what the party was told and asked before, in that order, and on nothing else: no
  thread, no time, no number of attempts. Between two calls a party remembers what its ``export`` holds.
- Arguments and answers are what the table says: arrays of N numbers, short vectors, scalars, flags,
  text. An argument that is optional, or a value that may be missing, is left out, not None.
- A talk is replayed. By files a round is begun again from the checkpoint, with the answers so far, until
  one is missing: between two yields there is arithmetic alone, no random number, no clock, no file.
- :meth:`~fastadmm.method.method.Method.restore` and
  :meth:`~fastadmm.method.method.Method.reopen` ask nobody. Parties keep their own state:
  those of this process get it back by
  :meth:`~fastadmm.method.method.Method.restore_parties`.

CONTRIBUTING.md says how to add a call or a method. Tests compare the bits by files with those in one process
(``tests/test_rounds_by_files.py``).
"""
