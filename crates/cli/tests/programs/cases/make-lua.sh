# program: make -j2, gcc: Lua
# needs: make=build-essential gcc=build-essential ar=binutils gzip=gzip bzip2=bzip2 xz=xz-utils cksum=coreutils
# sources: lua5.4
# before: mkdir lua; tar -xf "$SOURCES/lua5.4" --strip-components=1 --no-same-owner -C lua
# version: echo "$(tar -tf "$SOURCES/lua5.4" | sed -n '1s/^[^0-9]*\([0-9.]*[0-9]\).*/\1/p'), make $(make --version | head -n 1 | awk '{ print $NF }'), gcc $(gcc -dumpfullversion)"
# compares: every object, library, program and installed file, what built programs print, what is made again after a change
# dated: lua/doc/ installed/include/ man1/
cd "$1/lua"; umask 022
make -s -j2 linux
ls src/*.o | wc -l; make -s test; make -j2 linux | grep '^gcc' || echo nothing to do
sleep 0.01; touch src/lundump.h; make -j2 linux | grep -o '^gcc.* -o [^ ]*' | sed 's/.* //' | sort; make linux | grep '^gcc' || echo nothing to do
make -s install INSTALL_TOP="$1/installed"; PATH=$1/installed/bin:$PATH

mkdir "$1/scripts" "$1/scripts/modules"; cd "$1/scripts"
cat >language.lua <<'END'
local function sorted(t) local keys = {} for key in pairs(t) do keys[#keys + 1] = tostring(key) end table.sort(keys) return table.concat(keys, " ") end
print(_VERSION, 7 // 2, 7.0 / 2, 1 << 40, math.maxinteger + 1 == math.mininteger, string.format("%5.2f|%-8s|%q|%x", math.pi, "left", "a\n\"b\"", 48879))
local Account = {}; Account.__index = Account
Account.__add = function(a, b) return setmetatable({ sum = a.sum + b.sum }, Account) end
Account.__tostring = function(a) return "account of " .. a.sum end
print(setmetatable({ sum = 3 }, Account) + setmetatable({ sum = 4 }, Account))
local function permutations(a, n) n = n or #a
    if n <= 1 then coroutine.yield(a) return end
    for i = 1, n do a[n], a[i] = a[i], a[n]; permutations(a, n - 1); a[n], a[i] = a[i], a[n] end
end
local count, sum = 0, 0
for p in coroutine.wrap(function() permutations { 1, 2, 3, 4, 5, 6, 7 } end) do count = count + 1; sum = (sum * 31 + p[1] * 10 + p[7]) % 1000000007 end
print(count, sum)
local sieve, primes = {}, 0
for i = 2, 200000 do if not sieve[i] then primes = primes + 1; for j = i * i, 200000, i do sieve[j] = true end end end
print(primes, sorted(string), sorted(table))
print(("key = value, other=thing"):gsub("(%w+)%s*=%s*(%w+)", "%2=%1"), ("abc"):rep(3, "-"), utf8.char(228, 8364, 128512), utf8.len("äöü"))
print(string.unpack("<i4 z s2", string.pack("<i4 z s2", -5, "zero", "counted")), select("#", table.unpack({}, 1, 5)))
print(pcall(error, { code = 7 }) == false, select(2, pcall(function() local x = nil; return x.field end)), select(2, load("x = = 1", "chunk")))
do local guard <close> = setmetatable({}, { __close = function() print("closed") end }); print("open") end
local words = {} for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do words[#words + 1] = word end
table.sort(words, function(a, b) return #a == #b and a < b or #a < #b end); print(table.concat(words, " "))
for i = 1, 100000 do local t = { i, tostring(i) } end collectgarbage(); print(collectgarbage("count") > 0, goto_next or "no such variable")
END
cat >files.lua <<'END'
local name = arg[1] .. "/data"
local file = assert(io.open(name, "w")); file:setvbuf("full", 100)
for i = 1, 5000 do file:write(i, " ", i * i, "\n") end; print(file:seek("cur"), file:seek("set", 10), file:write("X"), file:close())
local sum, lines = 0, 0 for line in io.lines(name) do lines = lines + 1; sum = sum + #line end print(lines, sum)
file = assert(io.open(name, "r+")); print(file:read("n", "n", "l", "L", 5)); file:seek("end", -11); print(file:read("a")); file:seek("set", 0); file:write("first"); file:close()
file = assert(io.open(name, "a")); file:write("last\n"); file:close(); file = io.open(name); print(file:seek("end"), file:seek("set"), file:read(12)); file:close()
print(os.rename(name, name .. ".moved"), (io.open(name)), select(2, io.open(name)), os.remove(arg[1] .. "/none"))
local temporary = os.tmpname(); print(os.remove(temporary)); local t = io.tmpfile(); t:write("kept"); t:seek("set"); print(t:read("a")); t:close()
local pipe = io.popen("sort -rn '" .. name .. ".moved' | head -n 2"); print(pipe:read("a"), pipe:close()); print(os.execute("exit 3"))
io.output(name); io.write("default output\n"); io.close(); io.output(io.stdout); io.input(name); print(io.read("a"))
END
echo 'local m = {} function m.twice(x) return x * 2 end return m' >modules/twice.lua
cat >module.c <<'END'
#include "lua.h"
#include "lauxlib.h"
static int sum(lua_State *L) { lua_Integer s = 0; for (int i = lua_gettop(L); i > 0; i--) s += luaL_checkinteger(L, i); lua_pushinteger(L, s); return 1; }
int luaopen_csum(lua_State *L) { luaL_Reg all[] = { { "sum", sum }, { 0, 0 } }; luaL_newlib(L, all); return 1; }
END
cat >host.c <<'END'
#include <stdio.h>
#include "lua.h"
#include "lualib.h"
#include "lauxlib.h"
int main(int n, char **v) { lua_State *L = luaL_newstate(); luaL_openlibs(L); if (luaL_dofile(L, v[1])) { puts(lua_tostring(L, -1)); return 2; } printf("embedded %s\n", lua_tostring(L, -1)); lua_close(L); return n != 2; }
END
lua language.lua
mkdir work; lua files.lua work; cksum work/*
# A module in C, which is loaded from where it was built, and a program that the library is linked into.
gcc -shared -fPIC -O2 -I"$1/installed/include" -o modules/csum.so module.c
export LUA_PATH="$PWD/modules/?.lua" LUA_CPATH="$PWD/modules/?.so"
lua -e 'local c, t = require "csum", require "twice"; print(c.sum(1, 2, t.twice(20)), pcall(c.sum, "no"))'
gcc -O2 -I"$1/installed/include" -o host host.c "$1/installed/lib/liblua.a" -lm -ldl
echo 'return require("twice").twice(21)' >embedded.lua; ./host embedded.lua; ./host none.lua || echo "status $?"
luac -o language.out language.lua; luac -p files.lua; luac -s -o stripped.out language.lua; luac -l embedded.lua | grep -c RETURN
lua language.out | cksum; lua stripped.out | cksum; printf 'print(...)\nprint(#arg)\n' | lua - a b; lua -i -e 'print(1)' </dev/null | tail -n 1
printf '#!%s/installed/bin/lua\nprint("started by its first line", arg[1])\n' "$1" >started; chmod +x started; ./started x
lua -e 'error("deliberate")' || echo "status $?"; lua none.lua || echo "status $?"
