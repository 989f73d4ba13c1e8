# What shell scripts do with files: redirections of every kind, descriptors kept and moved,
# patterns, tests, here-documents, substitutions. $1 is the directory.
set -u
cd "$1" || exit 9
export LC_ALL=C

echo "--- redirections"
echo one >a; echo two >>a; cat <a; : >empty; echo three >|a; wc -c <a
set -C; echo no 2>/dev/null >a; echo "noclobber $?"; set +C
{ echo out; echo err >&2; } >both 2>&1; cat both
{ echo out; echo err >&2; } &>both; cat both; echo more &>>both; cat both
exec 5>kept; echo first >&5; exec 6>&5; echo second >&6; exec 5>&-; echo third >&6; exec 6>&-; cat kept
exec 7<>readwrite; echo 0123456789 >&7; exec 7>&-; exec 7<>readwrite; read -r -n 4 -u 7 part; printf XY >&7; exec 7>&-; cat readwrite; echo "$part"
exec {named}>named; echo "to $((named >= 10))" >&"$named"; exec {named}>&-; cat named
cat <<END
here $((1 + 1)) $(<a)
END
cat <<<"a string"
(echo from a child >&8) 8>child; cat child
{ echo x; sh -c 'echo y'; echo z; } >mixed; cat mixed
exec 9<mixed; read -r -u 9 l1; (read -r l2; echo "child read $l2") <&9; read -r -u 9 l3; echo "$l1 ${l3:-none}"; exec 9<&-

echo "--- input"
for i in {1..500}; do echo "line $i $((i * i))"; done >lines
count=0 sum=0; while read -r _ n s; do count=$((count + 1)) sum=$((sum + s)); done <lines; echo "$count $sum"
mapfile -t all <lines; echo "${#all[@]} ${all[499]}"
mapfile -t -s 10 -n 3 some <lines; printf '%s|' "${some[@]}"; echo
IFS= read -r -d '' whole <lines; echo "${#whole}"
read -r -N 5 five <lines; echo "$five"
paste -d: <(head -n 2 lines) <(tail -n 2 lines)
tee >(wc -l >counted) <lines >/dev/null; wait; until [[ -s counted ]]; do sleep 0.01; done; cat counted

echo "--- names"
mkdir -p tree/{a,b,c}/{1,2}; touch tree/{a,b,c}/{1,2}/file.{txt,c,.hidden}; touch tree/.dot "tree/with space"
echo tree/*; echo tree/a/?/*.c; shopt -s extglob globstar nullglob dotglob; echo tree/**/*.txt | wc -w; echo tree/*; echo tree/none*
echo tree/a/1/file.!(c); for f in tree/**; do [[ -f $f ]] && echo f; done | wc -l
ln -s a link; ln -s nowhere broken; mkfifo pipe; chmod 600 a; chmod 755 tree
for f in a empty link broken tree pipe none; do
    r=; for t in e f d L s p r w x O h; do if test "-$t" "$f"; then r+=$t; fi; done; echo "$f: $r"
done
touch -d 2001-01-01 old; touch -d 2002-02-02 new; [[ new -nt old ]] && echo newer; [[ old -ot new ]] && echo older; ln old same; [[ old -ef same ]] && echo same
pushd tree/a >/dev/null; pwd | sed "s,$1,D,"; dirs | wc -w; cd -P ../../tree/b || exit; echo "${PWD#"$1"}"; popd >/dev/null; echo "${PWD#"$1"}"
cd tree && cd .. && echo "${PWD#"$1"} ${OLDPWD#"$1"}"; cd -- "$1/tree/../tree/c" && echo "${PWD#"$1"}"; cd "$1" || exit
umask 077; echo secret >masked; umask 022; stat -c '%a %s' masked a

echo "--- programs"
cat >script <<'END'
#!/bin/bash
echo "script $# $1 ${BASH_SOURCE[0]##*/}"; return 3 2>/dev/null || exit 4
END
chmod +x script; ./script p q; echo $?; . ./script r; echo $?; PATH=$1:$PATH script s; echo $?
type -P ./script | sed "s,$1,D,"; hash -p "$1/script" named_script; named_script t; echo $?
value=$(./script u; echo "status $?"); echo "$value"; trap 'echo at exit >>exited' EXIT
(trap 'echo in the child' EXIT; cd tree; echo "${PWD##*/}"); echo "${PWD#"$1"}."
background() { for i in 1 2 3; do echo "bg $i"; done >>bg; }; background & wait $!; cat bg
printf '%s\n' b a c | sort >sorted; comm -12 sorted <(printf 'a\nc\n'); diff sorted sorted && echo alike
history -w history 2>/dev/null; rm -r tree/c; mv a tree/moved; ls -A tree | sort; echo done
