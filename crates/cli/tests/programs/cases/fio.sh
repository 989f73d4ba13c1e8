# program: fio (io_uring)
# needs: fio=fio cksum=coreutils
# version: fio --version
# compares: files that are written and verified by rings: one after the other, registered files and buffers, vectors, appending, with fsync, by several processes
cd "$1"
run() {
    fio --name="$1" --directory="$PWD" --size=4m --bs=4k --iodepth=16 --ioengine=io_uring --randrepeat=1 --verify=pattern \
        --verify_pattern="%o" --do_verify=1 --verify_fatal=1 --verify_state_save=0 --end_fsync=1 --minimal "${@:2}" >"$SCRATCH/$1.log" 2>&1 || {
        cat "$SCRATCH/$1.log"
        exit 1
    }
    # The fifth field is the error.
    awk -F ';' 'NF > 10 { print $3, $5 }' "$SCRATCH/$1.log"
}
run written --rw=write
run random --rw=randwrite --fsync=64
run registered --rw=randwrite --registerfiles=1
run buffers --rw=randwrite --fixedbufs=1
run both --rw=randwrite --registerfiles=1 --fixedbufs=1 --iodepth_batch=8
run vectors --rw=randrw --nonvectored=0 --bs=16k
run extended --rw=write --fallocate=none --file_append=1
run several --rw=randwrite --numjobs=4 --group_reporting=1
ls -l | awk 'NR > 1 { print $5, $9 }'
cksum ./*
