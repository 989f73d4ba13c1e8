"""Stores, as mappings."""

import os
import random
import stat
import unittest
from collections.abc import MutableMapping

from support import OnPool

import arck


class Stores(OnPool):
    def setUp(self):
        super().setUp()
        self.store = self.fs.keyvalue(self.at("store"))
        self.addCleanup(self.store.close)

    def test_it_is_a_mapping(self):
        store = self.store
        self.assertIsInstance(store, MutableMapping)
        self.assertEqual((len(store), list(store), dict(store)), (0, [], {}))
        store[b"a"] = b"1"
        store[b"empty"] = b""
        self.assertEqual((store[b"a"], store[b"empty"], store.get(b"none"), store.get(b"none", 7)), (b"1", b"", None, 7))
        self.assertEqual(store, {b"a": b"1", b"empty": b""})
        self.assertEqual((store.pop(b"a"), store.pop(b"a", None)), (b"1", None))
        self.assertEqual((store.setdefault(b"s", b"x"), store.setdefault(b"s", b"y")), (b"x", b"x"))
        store.update({b"u": b"1"})
        store.update([(b"v", b"2")])
        store.update({bytes([65 + number % 26, 48 + number // 26]): b"m" for number in range(100)})
        self.assertEqual(len(store), 104)
        self.assertIn(store.popitem()[1], (b"", b"x", b"1", b"2", b"m"))
        del store[next(iter(store))]
        self.assertEqual(len(store), 102)
        store.clear()
        self.assertEqual(len(store), 0)
        self.assertEqual(set(store.items()), set())

    def test_beside_a_dictionary(self):
        random_ = random.Random(7)
        model = {}
        for _ in range(3000):
            key = f"key {random_.randrange(60)}".encode()
            match random_.randrange(6):
                case 0 | 1:
                    value = random_.randbytes(random_.choice([0, 1, 100, 4096, 32768]))
                    self.store[key] = model[key] = value
                case 2:
                    self.assertEqual(self.store.get(key), model.get(key))
                case 3:
                    self.assertEqual(self.store.pop(key, None), model.pop(key, None))
                case 4:
                    self.assertEqual(key in self.store, key in model)
                case 5:
                    changes = {f"key {random_.randrange(60)}".encode(): b"batch" for _ in range(5)}
                    self.store.update(changes)
                    model.update(changes)
        self.assertEqual(self.store, model)
        for key, value in model.items():
            self.assertEqual(self.fs.read_bytes(self.at("store/") + key.decode()), value)

    def test_together(self):
        store = self.store
        store[b"old"] = b"1"
        self.assertEqual(store.apply({b"old": None, b"new": b"2", b"other": b"3"}), 1)
        self.assertEqual(store, {b"new": b"2", b"other": b"3"})
        # One that cannot be keeps the others from being made.
        with self.assertRaises(ValueError):
            store.apply({b"x": b"1", b"y": b"1" * 40_000})
        self.assertNotIn(b"x", store)
        with self.assertRaises(ValueError):
            store.apply({b"%d" % number: b"" for number in range(store.BATCH_MAX + 1)})
        store.update({b"%d" % number: b"" for number in range(1000)})
        self.assertEqual(len(store), 1002)
        store.clear()
        self.assertEqual(len(store), 0)

    def test_wrong_keys_and_values(self):
        store = self.store
        for key in (b"", b".", b"..", b"a/b", b"a\0b", b"k" * 256):
            with self.subTest(key[:5]):
                self.assertRaises(ValueError, store.__setitem__, key, b"")
                self.assertRaises(ValueError, store.__getitem__, key)
                self.assertRaises(ValueError, store.__delitem__, key)
                self.assertNotIn(key, store)
        for key in ("text", 7, None, object()):
            self.assertRaises(TypeError, store.__setitem__, key, b"")
            self.assertRaises(TypeError, store.__getitem__, key)
        for value in ("text", 7, None):
            self.assertRaises(TypeError, store.__setitem__, b"k", value)
        self.assertRaises(ValueError, store.__setitem__, b"k", bytes(store.VALUE_MAX + 1))
        self.assertRaises(TypeError, store.update, a=b"1")
        store[b"k" * 255] = bytes(store.VALUE_MAX)
        self.assertEqual(store[b"k" * 255], bytes(store.VALUE_MAX))
        store[bytearray(b"copied")] = memoryview(b"a.b.c")[::1]
        self.assertEqual(store[memoryview(b"copied")], b"a.b.c")
        with self.assertRaises(KeyError) as raised:
            store[b"none"]
        self.assertEqual(raised.exception.args, (b"none",))
        self.assertRaises(KeyError, store.__delitem__, b"none")
        self.assertRaises(KeyError, store.pop, b"none")

    def test_files_and_directories(self):
        self.fs.mkdir(self.at("store/directory"))
        self.fs.write_bytes(self.at("store/file"), b"by the other face")
        self.assertEqual((self.store[b"file"], list(self.store)), (b"by the other face", [b"file"]))
        self.assertRaises(IsADirectoryError, self.store.__getitem__, b"directory")
        self.assertRaises(IsADirectoryError, self.store.__setitem__, b"directory", b"")
        self.fs.write_bytes(self.at("store/large"), bytes(100_000))
        self.assertRaises(ValueError, self.store.__getitem__, b"large")
        with arck.Store(self.fs.pool, self.at("secret"), mode=0o600) as store:
            store[b"k"] = b"v"
        self.assertEqual(stat.S_IMODE(self.fs.stat(self.at("secret/k")).st_mode), 0o600)
        with self.assertRaises(FileNotFoundError):
            self.fs.keyvalue(self.at("none"), make=False)
        with self.assertRaises(NotADirectoryError):
            self.fs.keyvalue(self.at("store/file"))
        self.assertEqual(os.path.basename(self.at("store")), "store")


if __name__ == "__main__":
    unittest.main()
