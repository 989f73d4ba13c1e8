# program: git
# needs: git=git
# version: git --version | awk '{ print $3 }'
# compares: every object of a clone of this repository, output of gc, fsck, rebase, status, worktrees, the working tree
# volatile: .git/index .git/worktrees objects/pack/ objects/info/ .git/FETCH_HEAD .git/ORIG_HEAD
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_PAGER=cat GIT_CONFIG_SYSTEM=/dev/null
printf '[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n[core]\n\tfsync = all\n[pack]\n\tthreads = 1\n[advice]\n\tdetachedHead = false\n' >"$SCRATCH/.gitconfig"
objects() { git -C "$1" cat-file --batch-all-objects --batch-check | sort | sha256sum; }
project=$(git -C "$PROJECT" rev-parse --show-toplevel)
cd "$1"
# This project, cloned from the host; then a clone of the clone, by hard links.
git clone -q --no-local --single-branch "$project" project
git clone -q project linked
objects project; objects linked; find linked/.git/objects -type f -links +1 | wc -l | awk '{ print ($1 > 0) }'
git -C linked log --format=%H | sha256sum; git -C linked diff --stat HEAD~3 HEAD | tail -n 1; git -C linked status --short
cd project
git switch -q -c topic HEAD~5
for i in 1 2 3 4 5 6; do echo "line $i" >>topic-$i; sed -i "$((i * 9))s/^/topic $i /" LICENSE-APACHE; git add .; git commit -q -m "topic $i"; done
git rebase -q --onto HEAD~6~3 HEAD~6; git log --format='%s' -n 8
git rebase -q --exec 'test -f topic-1 && echo there' HEAD~3
GIT_SEQUENCE_EDITOR='sed -i -e 2s/pick/squash/ -e 3s/pick/drop/' GIT_EDITOR=true git rebase -q -i HEAD~4; git log --format='%s' -n 5; git status --short
git switch -q -c conflict HEAD~2; echo other >LICENSE-APACHE; git commit -qam other; git rebase topic >/dev/null 2>&1 || git status --short | grep '^UU'; git checkout -q --theirs LICENSE-APACHE; git add LICENSE-APACHE; GIT_EDITOR=true git rebase --continue >/dev/null; git log --format=%s -n 1
git gc -q --prune=now; git fsck --full --strict 2>&1 | grep -v '^\(dangling\|notice\)' || echo sound
git count-objects -v | grep -E '^(count|packs|garbage)'; objects .
git worktree add -q ../tree HEAD~4; git -C ../tree status --short; (cd ../tree; git mv LICENSE-APACHE read; git commit -qm read; git rev-parse HEAD); git worktree list | wc -l
git repack -qadf; git verify-pack .git/objects/pack/*.idx && echo verified; git index-pack --threads=2 --strict -o ../again.idx .git/objects/pack/*.pack; cmp ../again.idx .git/objects/pack/*.idx && rm -f ../again.idx; git commit-graph write --no-progress; git multi-pack-index write; git multi-pack-index verify; git pack-refs --all; git for-each-ref | sha256sum
git stash list; echo x >>LICENSE-MIT; git stash -q; git stash pop -q; git diff | sha256sum; git checkout -q -- .; git clean -fdxq
git grep --threads=2 -c unsafe -- crates/arckfs | sort | sha256sum; git blame -s Cargo.toml | sha256sum; git archive --format=tar HEAD | sha256sum; git bundle create -q "$1/bundle" HEAD topic; git clone -q -b topic "$1/bundle" ../bundled; objects ../bundled; rm "$1/bundle"
cd ../linked; git fetch -q ../project topic; git merge -q --no-edit FETCH_HEAD >/dev/null; git rev-parse HEAD; git push -q ../project HEAD:refs/heads/pushed; git -C ../project rev-parse pushed; git reset -q --hard HEAD~1; git status --short | wc -l; git bisect start HEAD HEAD~4 >/dev/null; git bisect run test -f Makefile >/dev/null 2>&1 || true; git bisect reset >/dev/null 2>&1; git fsck --full 2>&1 | grep -v '^\(dangling\|notice\)' || echo sound
