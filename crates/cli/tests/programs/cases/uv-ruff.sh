# program: uv, ruff
# needs: uv=pypi ruff=pypi /usr/bin/python3=python3
# version: echo "$(uv --version | awk "{ print \$2 }"), $(ruff --version)"
# compares: a package that uv begins, builds and installs into environments (copied, by hard links and by symbolic ones), what it leaves of it, a cache on the pool, sources that ruff formats and corrects
# volatile: cache/ dist/ /RECORD __pycache__/ .ruff_cache/ uv_cache.json
# forms: run alone mount
cd "$1"; umask 022
export UV_CACHE_DIR=$1/cache UV_OFFLINE=1 UV_PYTHON=/usr/bin/python3 UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 UV_NO_CONFIG=1
said() { "$@" 2>&1 | sed -E 's/ in [0-9.]+m?s$//; s/\x1b\[[0-9;]*m//g'; }
said uv init --quiet --lib --build-backend uv --vcs none --author-from none --name small small
for i in $(seq 100); do echo "value = $i" >small/src/small/part_$i.py; echo "from . import part_$i" >>small/src/small/__init__.py; done
said uv build --quiet --wheel --sdist --out-dir dist small; ls dist
for mode in copy hardlink symlink; do
    said uv venv --quiet "environment-$mode"
    said uv pip install --python "environment-$mode/bin/python" --no-index --find-links dist --link-mode "$mode" small
    "environment-$mode/bin/python" -c 'import small; print(small.hello(), small.part_77.value)'
    find "environment-$mode" -name 'part_*.py' -type f -links +1 | wc -l
    find "environment-$mode" -name 'part_*.py' -type l | wc -l
done
said uv pip list --python environment-copy/bin/python
# Several at once take turns by locks in the cache.
for i in 1 2 3 4; do uv venv --quiet "many-$i" && uv pip install --quiet --python "many-$i/bin/python" --no-index --find-links dist small & done; wait
for i in 1 2 3 4; do "many-$i/bin/python" -c 'import small; print(small.part_5.value)'; done
said uv pip uninstall --quiet --python environment-copy/bin/python small; environment-copy/bin/python -c 'import small' 2>&1 | tail -n 1
said uv cache clean --quiet; find cache 2>/dev/null | wc -l
rm -r environment-symlink many-?
for i in $(seq 50); do printf 'import os, sys\ndef  f%s( a,b ):\n  return {"a":a,\n "b" : b}\nx = not None == %s\n' $i $i >small/src/file_$i.py; done
said ruff format small
said ruff check --fix --unsafe-fixes --select F,E,I small | tail -n 1
said ruff format small; said ruff format --check small; said ruff check --select F,I small | tail -n 1
cat small/src/file_7.py
