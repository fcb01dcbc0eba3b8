"""Each rank gives a number, and prints those of all: PMIx by its C functions, without an MPI library.

These are of pmix.h: init, put, commit, fence, get, finalize.
"""

import ctypes
import os

UINT32, GLOBAL, BOOL = 14, 3, 1  # types and scopes of pmix_common.h

lib = ctypes.CDLL("libpmix.so.2")


class Proc(ctypes.Structure):
    _fields_ = [("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]


class Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint16), ("data", ctypes.c_uint64 * 8)]


class Info(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", Value)]


def must(rc):
    if rc != 0:
        raise SystemExit("PMIx failed: %d" % rc)


me = Proc()
must(lib.PMIx_Init(ctypes.byref(me), None, 0))
v = Value(type=UINT32)
v.data[0] = 1000 + me.rank
must(lib.PMIx_Put(ctypes.c_uint8(GLOBAL), b"berth.key", ctypes.byref(v)))
must(lib.PMIx_Commit())
collect = Info(key=b"pmix.collect", value=Value(type=BOOL))
collect.value.data[0] = 1
must(lib.PMIx_Fence(None, 0, ctypes.byref(collect), 1))
got = []
for r in range(int(os.environ["SLURM_NTASKS"])):
    p, out = Proc(nspace=me.nspace, rank=r), ctypes.POINTER(Value)()
    must(lib.PMIx_Get(ctypes.byref(p), b"berth.key", None, 0, ctypes.byref(out)))
    got.append(str(out.contents.data[0] & 0xffffffff))
must(lib.PMIx_Finalize(None, 0))
print("%d: %s" % (me.rank, " ".join(got)))
