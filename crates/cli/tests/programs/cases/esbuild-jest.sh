# program: esbuild, jest
# needs: node=nodejs esbuild=npm jest=npm
# version: echo "$(esbuild --version), jest $(jest --version)"
# compares: bundles of 60 modules, minified and not, with maps, what esbuild says of a mistake, what it makes again as sources change; tests that jest runs in two workers, with snapshots, a cache on the pool, and coverage
# volatile: cache/ coverage/
# forms: run alone mount
# esbuild is Go's, and static; jest is node's, with libraries that make system calls by themselves.
cd "$1"
mkdir source tests
for i in $(seq 60); do
    printf 'import { add } from "./base.js";\nexport const value%s: number = add(%s, 1);\nexport const unused%s = "gone";\n' $i $i $i >source/part$i.ts
    echo "import { value$i } from './part$i'; values.push(value$i);" >>source/rest
done
echo 'export const add = (a, b) => a + b;' >source/base.js
{ grep -o '^import[^;]*;' source/rest; echo 'const values: number[] = [];'; sed 's/^[^;]*; //' source/rest; echo 'console.log(values.reduce((a, b) => a + b));'; } >source/main.ts
rm source/rest
esbuild source/main.ts --bundle --platform=node --outfile=out/main.js --log-level=warning
node out/main.js
esbuild source/main.ts --bundle --minify --sourcemap --target=es2020 --outdir=out/small --metafile=out/meta.json --log-level=warning
node out/small/main.js; cksum out/main.js out/small/*
cp out/main.js out/before.js; echo 'const x = ;' >source/wrong.ts
esbuild source/wrong.ts --bundle --outfile=out/wrong.js --color=false 2>&1 | head -n 5 || true
rm source/wrong.ts
# Watching, it makes what is changed again, until its standard input ends.
mkfifo "$SCRATCH/end"
esbuild source/main.ts --bundle --platform=node --outfile=out/watched.js --watch --log-level=silent <"$SCRATCH/end" & watcher=$!
exec 4>"$SCRATCH/end"
until [[ -s out/watched.js ]]; do sleep 0.05; done
until [[ $(node out/watched.js 2>/dev/null) == 3750 ]]; do
    echo 'export const add = (a, b) => a + b + 31;' >source/base.js
    sleep 0.2
done
exec 4>&-; wait $watcher || true
node out/watched.js

echo '{ "jest": { "cacheDirectory": "cache", "coverageReporters": ["json-summary"] } }' >package.json
for i in $(seq 12); do
    cat >tests/part$i.test.js <<END
const fs = require('fs'), path = require('path');
describe('part $i', () => {
    const directory = fs.mkdtempSync(path.join(__dirname, 'made-'));
    afterAll(() => fs.rmSync(directory, { recursive: true }));
    test('files', () => {
        for (let n = 0; n < 20; n++) fs.writeFileSync(path.join(directory, 'f' + n), 'text ' + n);
        expect(fs.readdirSync(directory).length).toBe(20);
    });
    test('snapshot', () => expect({ part: $i, text: fs.readFileSync(path.join(directory, 'f7'), 'utf8') }).toMatchSnapshot());
});
END
done
tested() { jest --no-watchman --maxWorkers 2 "$@" 2>&1 | grep -vE '^Time:|^PASS|^Ran|^$|^ *at ' | sed 's/ ([0-9.]* m*s)//'; }
tested --ci=false
ls tests/__snapshots__ | wc -l
tested --coverage
sed -i 's/text 7/text 8/' tests/__snapshots__/part3.test.js.snap
tested part3 || true
tested --ci=false -u part3; grep -c 'text 7' tests/__snapshots__/part3.test.js.snap
