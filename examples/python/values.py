"""Small values of a pool as a mapping, and what becomes of them as files.

    ARCK_POOL=/dev/shm/my-pool python3 examples/python/values.py
"""

import arck

with arck.connect() as fs, fs.keyvalue("sessions") as store:
    store[b"anna"] = b"language=no"
    store[b"bert"] = b"language=de"

    # All of it, or nothing: also if the machine stops in the middle.
    store.apply({b"bert": None, b"carl": b"language=fr", b"dora": b"language=it"})

    for key in sorted(store):
        print(key.decode(), store[key].decode())
    print(b"bert" in store, store.get(b"bert", b"nobody"))

    # They are files to everybody else.
    print(fs.read_bytes("sessions/anna").decode(), len(fs.listdir("sessions")), "files")
