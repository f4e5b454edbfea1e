"""Constructors of data classes by the number of their arguments, compiled with this module: `exec` takes 0.1 ms for each.

`dovetail.dataclass` takes their code, and fills in the names of the arguments and the globals: `_SET_0` sets the first argument.
"""

# mypy: allow-untyped-defs

__all__ = ["CONSTRUCTORS"]

_SET_0 = _SET_1 = _SET_2 = _SET_3 = _SET_4 = _SET_5 = _SET_6 = _SET_7 = _SET_8 = _SET_9 = _SET_10 = _SET_11 = _FINISH = print


def _of_0(self):
    _FINISH(self)


def _of_1(self, _0):
    _SET_0(self, _0)


def _of_2(self, _0, _1):
    _SET_0(self, _0)
    _SET_1(self, _1)


def _of_3(self, _0, _1, _2):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)


def _of_4(self, _0, _1, _2, _3):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)


def _of_5(self, _0, _1, _2, _3, _4):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)


def _of_6(self, _0, _1, _2, _3, _4, _5):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)
    _SET_5(self, _5)


def _of_7(self, _0, _1, _2, _3, _4, _5, _6):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)
    _SET_5(self, _5)
    _SET_6(self, _6)


def _of_8(self, _0, _1, _2, _3, _4, _5, _6, _7):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)
    _SET_5(self, _5)
    _SET_6(self, _6)
    _SET_7(self, _7)


def _of_9(self, _0, _1, _2, _3, _4, _5, _6, _7, _8):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)
    _SET_5(self, _5)
    _SET_6(self, _6)
    _SET_7(self, _7)
    _SET_8(self, _8)


def _of_10(self, _0, _1, _2, _3, _4, _5, _6, _7, _8, _9):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)
    _SET_5(self, _5)
    _SET_6(self, _6)
    _SET_7(self, _7)
    _SET_8(self, _8)
    _SET_9(self, _9)


def _of_11(self, _0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)
    _SET_5(self, _5)
    _SET_6(self, _6)
    _SET_7(self, _7)
    _SET_8(self, _8)
    _SET_9(self, _9)
    _SET_10(self, _10)


def _of_12(self, _0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11):
    _SET_0(self, _0)
    _SET_1(self, _1)
    _SET_2(self, _2)
    _SET_3(self, _3)
    _SET_4(self, _4)
    _SET_5(self, _5)
    _SET_6(self, _6)
    _SET_7(self, _7)
    _SET_8(self, _8)
    _SET_9(self, _9)
    _SET_10(self, _10)
    _SET_11(self, _11)


CONSTRUCTORS = (_of_0, _of_1, _of_2, _of_3, _of_4, _of_5, _of_6, _of_7, _of_8, _of_9, _of_10, _of_11, _of_12)
