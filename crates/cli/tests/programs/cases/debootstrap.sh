# program: debootstrap (first stage), tar of a root file system, chroot
# needs: /usr/sbin/debootstrap=debootstrap debian/packages.tar=debootstrap tar=tar chroot=coreutils
# version: /usr/sbin/debootstrap --version | awk '{ print $2 }'
# compares: a small Debian that is unpacked, device nodes in it, an archive of it that is unpacked again: each file, mode, owner, number of a device and link; programs in it, in a changed root
# volatile: debootstrap.log
# forms: run mount
# As in a container (`container=lxc`), where no device leads to a driver: so it is not configured either, for which
# its own /dev/null would have to.
cd "$1"
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mkdir root
container=lxc /usr/sbin/debootstrap --foreign --variant=minbase --unpack-tarball="$(realpath "$INSTALLED/debian/packages.tar")" "$release" root >"$SCRATCH/out" 2>&1 || {
    tail -n 20 "$SCRATCH/out" root/debootstrap/debootstrap.log
    exit 1
}
tail -n 3 "$SCRATCH/out"
rm -r root/var/cache/apt/archives
mkdir -p root/dev/pts
while read -r name kind major minor mode; do mknod -m "$mode" "root/dev/$name" "$kind" "$major" "$minor"; done <<END
kmsg c 1 11 640
loop0 b 7 0 660
END
chown 0:5 root/dev/kmsg; mkfifo -m 600 root/dev/pipe
ls root/dev | sort; stat -c '%n %F %t:%T %a %u:%g' root/dev/kmsg root/dev/loop0 root/dev/pipe
tar -C root --numeric-owner --xattrs --sort=name -cf root.tar .
mkdir again; tar -C again --numeric-owner --xattrs -xpf root.tar
listing() { (cd "$1"; find . \! -type d -printf '%p %y %s %m %n %U:%G %l %t\n' -o -printf '%p %m %U:%G %t\n' | sort; find . -type f -exec cksum {} + | sort -k 3; find . -type b -o -type c | sort | xargs stat -c '%n %t:%T'); }
listing root >"$SCRATCH/root"; listing again | cmp - "$SCRATCH/root"; echo "$(wc -l <"$SCRATCH/root") lines"
tar -C again --compare -f root.tar
# In a changed root nothing but the kernel's mount is there; what it prints goes to a file of the pool.
inside() { chroot again /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
inside sh -c 'cd /tmp; echo text >file; ln file other; stat -c "%h %s" file; rm file; ls -l /bin/sh; pwd; cat other'
inside mawk 'BEGIN { print "awk:", 6 * 7; print "by awk" >"/tmp/made" }' >printed; cat printed again/tmp/made
(cd again; chroot . /bin/sh -c 'dpkg --version | head -n 1; echo error >&2; exit 3' >>../printed 2>&1) || echo "status $?"; cat printed
echo from outside | chroot "$1/again" /bin/cat
if chroot again /nothing 2>"$SCRATCH/error"; then exit 1; else echo "status $?"; fi
if chroot root.tar /bin/true 2>"$SCRATCH/error"; then exit 1; else cat "$SCRATCH/error"; fi
rm -r root root.tar
