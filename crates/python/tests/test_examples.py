"""The examples of docstrings, run as they stand there."""

import csv
import doctest
import importlib
import pkgutil
import unittest

from support import POOL, OnPool

import arck


class Docstrings(OnPool):
    def test_all(self):
        names = ["arck", *(f"arck.{module.name}" for module in pkgutil.iter_modules(arck.__path__))]
        run = 0
        for name in names:
            with self.subTest(name), self.fs.keyvalue(self.at(name)) as store:
                names = {"arck": arck, "csv": csv, "fs": self.fs, "pool": POOL, "store": store}
                module = importlib.import_module(name)
                flags = doctest.ELLIPSIS
                ran = doctest.testmod(module, extraglobs=names, optionflags=flags, verbose=False)
                self.assertEqual(ran.failed, 0)
                run += ran.attempted
        self.assertGreater(run, 20)

    def test_all_that_is_public_is_documented(self):
        for name in arck.__all__:
            thing = getattr(arck, name)
            self.assertTrue(thing.__doc__, name)
            for member in dir(thing):
                if not member.startswith("_") and callable(getattr(thing, member)):
                    self.assertTrue(getattr(thing, member).__doc__, f"{name}.{member}")


if __name__ == "__main__":
    unittest.main()
