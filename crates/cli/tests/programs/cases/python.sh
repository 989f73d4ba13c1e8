# program: python3 -m venv, pip
# needs: /usr/bin/python3=python3 /usr/lib/python3/dist-packages/pip/__init__.py=python3-pip /usr/lib/python3*/ensurepip/__init__.py=python3-venv
# version: /usr/bin/python3 --version | awk '{ print $2 }'
# compares: the environment's files, a package installed from a wheel that the case makes, its programs, compiled modules, an uninstallation
# volatile: __pycache__/ /RECORD
cd "$1"; umask 022
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
/usr/bin/python3 -m venv environment
environment/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix, sys.version_info[:2])'
# A wheel is a zip file with three files of metadata.
mkdir wheel; cat >make.py <<'END'
import base64, hashlib, zipfile
files = {
    "small/__init__.py": "def double(x):\n    return 2 * x\n",
    "small/__main__.py": "from . import double\ndef main():\n    import sys, os\n    print(double(int(sys.argv[1])), os.path.basename(sys.argv[0]))\nif __name__ == '__main__':\n    main()\n",
    "small/data.txt": "data\n" * 1000,
    "small-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
    "small-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: case\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "small-1.0.dist-info/entry_points.txt": "[console_scripts]\nsmall = small.__main__:main\n",
}
for i in range(100):
    files[f"small/part_{i}.py"] = f"value = {i}\n"
files["small/__init__.py"] += "".join(f"from . import part_{i}\n" for i in range(100))
record = ""
with zipfile.ZipFile("wheel/small-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
    def put(name, text):
        wheel.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
    for name, text in files.items():
        put(name, text)
        record += f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}\n"
    put("small-1.0.dist-info/RECORD", record + "small-1.0.dist-info/RECORD,,\n")
END
/usr/bin/python3 make.py; cksum wheel/*
. environment/bin/activate
pip install --quiet --find-links wheel small; pip list --format=freeze | grep small; pip show -f small | grep -c part_
small 21; python -m small 4; cd /; "$1/environment/bin/small" 5; cd "$1"; deactivate
environment/bin/pip check
cat >use.py <<'END'
import concurrent.futures, multiprocessing, mmap, os, shelve, small, sqlite3, subprocess, tempfile
def work(i):
    with open(f"out-{i}", "w") as out: print(small.double(i), file=out)
    return os.path.getsize(f"out-{i}")
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(3) as pool: print(sum(pool.map(work, range(20))))
    with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(work, range(5)))
    with shelve.open("shelf") as shelf: shelf["a"] = [1, 2]; print(shelf["a"])
    with open("mapped", "w+b") as f:
        f.truncate(8192); m = mmap.mmap(f.fileno(), 0); m[5000:5005] = b"hello"; m.flush(); m.close()
    print(open("mapped", "rb").read()[5000:5005], subprocess.check_output(["sh", "-c", "cat out-7"]))
    with tempfile.TemporaryDirectory(dir=".") as d, tempfile.TemporaryFile(dir=d) as f: f.write(b"x"); print(len(os.listdir(d)))
END
environment/bin/python use.py; rm -f shelf*
environment/bin/python -m compileall -q environment/lib/python3*/site-packages/small; find environment -path '*small*' -name '*.pyc' | wc -l
environment/bin/pip uninstall --quiet -y small; environment/bin/python -c 'import small' 2>&1 | tail -n 1; ls environment/bin | grep -c small || true
