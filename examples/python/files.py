"""Files of a pool, with what Python's standard library does with files.

    ARCK_POOL=/dev/shm/my-pool python3 examples/python/files.py
"""

import csv
import json
import pickle
import zipfile

import arck

with arck.connect() as fs:
    fs.makedirs("example", exist_ok=True)
    folder = fs / "example"

    # Text, as of the built-in open.
    with (folder / "cities.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Oslo", 709_000), ("Bergen", 291_000)])
    with (folder / "cities.csv").open(newline="") as file:
        people = {name: int(count) for name, count in csv.reader(file)}

    with (folder / "people.json").open("w") as file:
        json.dump(people, file)
    with (folder / "people.pickle").open("wb") as file:
        pickle.dump(people, file)
    with (folder / "people.pickle").open("rb") as file:
        assert pickle.load(file) == people

    # A whole file by one call, and an archive of several.
    folder.joinpath("note.txt").write_bytes(b"made by an example\n")
    with (folder / "all.zip").open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        for path in folder.glob("*.json"):
            archive.writestr(path.name, path.read_bytes())

    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:6} {path}")
    print(sum(people.values()), "people")
