"""One conversation: what the coordinator asks of parties, in one table, carried by whichever driver.

The coordinator does no input or output. What speaks to parties is a *talk*
(:mod:`fastadmm.conversation.exchange`): a generator that yields exchanges and is
sent the answers, in the order of the calls. A *driver* carries exchanges: threads of this process
(:mod:`fastadmm.conversation.threads`), or files (:mod:`fastadmm.between`). Every call and its answer stand
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

How to add a method
-------------------
1. Its party derives from :class:`~fastadmm.conversation.answering.Answering` and has a ``family``; what the
   coordinator calls takes keywords and returns a dictionary (or None, where there is nothing to answer).
   ``opened``, ``export`` and ``restore`` let it live in another process: it is one of
   :data:`fastadmm.parties.families.FAMILIES`. What a metric changes is factorised when it is first needed.
2. The table has one entry per such call, with the family and the kinds of arguments and answer. A name means
   one thing in all families. A new argument of ``start`` is optional: older releases do not send it.
3. The coordinator says ``answers = yield from ask_all(n_parties, "ask", gradient=g)``, or where arguments
   differ ``answers = yield Exchange([Call(m, "ask", {...}) for m in range(n_parties)])``. Whatever calls it
   is a talk, too.
4. Of the method nothing but ``make_parties``, ``prepare_parties``, ``export_parties`` and
   ``restore_parties`` touches ``self.parties``. ``final_arguments`` is what a party needs to know its
   weights; what ``reopen`` needs is in ``export``. Tests compare the bits by files with those in one process
   (``tests/test_rounds_by_files.py``).
"""
