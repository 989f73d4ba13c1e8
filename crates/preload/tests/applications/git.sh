# A repository's life, with dates and names given so that all its objects are the same each time.
set -eu
cd "$1"
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat HOME=$1 LC_ALL=C
git init -q -b main one
cd one
git config gc.auto 0; git config pack.threads 1; git config core.fsync all; git config advice.detachedHead false
mkdir -p src/deep/er; for i in $(seq 60); do seq $i $((i * 3)) >src/file-$i; done; cp src/file-7 src/deep/er/seven
echo '*.o' >.gitignore; touch a.o; ln -s src/file-1 link; printf '#!/bin/sh\n' >run; chmod +x run; mkdir empty
git add .; git status --short | wc -l; git commit -q -m first; git log --oneline
echo more >>src/file-3; git mv src/file-4 src/renamed; git rm -q src/file-5; git status --short; git diff --stat; git commit -qam second
git checkout -q -b side; for i in 1 2 3; do echo "side $i" >>src/file-1$i; git commit -qam "side $i"; done
git checkout -q main; echo main >>src/file-20; git commit -qam 'on main'; git merge -q --no-edit side; git log --oneline --graph | cat
git checkout -q -b conflict HEAD~1; echo x >>src/file-11; git commit -qam conflict; git merge side >/dev/null || git status --short | grep '^UU'; git checkout --theirs src/file-11; git add src/file-11; git commit -q --no-edit; git checkout -q main
git checkout -q -b rebased side; echo r >rebased; git add rebased; git commit -qm rebased; git rebase -q main; git log --oneline | wc -l; git checkout -q main
echo stash >>src/file-2; git stash -q; git status --short; git stash pop -q; git diff --stat | cat; git checkout -q -- src/file-2
git tag -a -m tagged v1; git describe; git blame -s src/file-3 | tail -n 1; git grep -c main | head -n 3; git show --stat HEAD~1 | cat; git cherry-pick -x side~2 2>&1 | head -n 1 || true; git cherry-pick --abort 2>/dev/null || git reset -q --hard
git gc -q; git count-objects -v | grep -E '^(count|in-pack|packs)'; git fsck --full --strict 2>&1 | grep -v '^dangling' || true; git repack -qadf; git verify-pack .git/objects/pack/*.idx && echo verified; git prune
cd ..; git clone -q one two; git -C two log --oneline | wc -l; git clone -q --bare --no-hardlinks one bare.git; git -C bare.git fsck 2>&1 | grep -v dangling || true
cd two; echo two >two; git add two; git commit -qm two; git push -q ../bare.git HEAD:refs/heads/two; git -C ../bare.git log --oneline -1 two; git fetch -q ../bare.git; git pull -q --rebase ../bare.git main; git log --oneline -2
git worktree add -q ../tree HEAD~1; ls ../tree | wc -l; git -C ../tree status --short; git worktree remove ../tree; ls ..
git archive HEAD | tar t | wc -l; git bundle create -q ../bundle HEAD main; git clone -q ../bundle ../three -b main; git -C ../three status --short | wc -l
git bisect start HEAD HEAD~3 >/dev/null; git bisect run true >/dev/null 2>&1 || true; git bisect reset >/dev/null 2>&1; git clean -fdxq; git reflog | wc -l
rm ../bundle
