r"""Party x-updates: solve :math:`\min_x \tfrac{\mu}{2}\|x\|^2 + \tfrac12\|D x - w\|^2` by shape.

With :math:`\mu = \lambda W / (\tau r)` this is the x-update of ADMM sharing
(Hu et al., equation 6) for squared l2 regularisation, divided by
:math:`\tau r`. Three ways, chosen in :mod:`fastadmm.parties.xupdate.choose`.
"""
