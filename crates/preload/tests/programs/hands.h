/* How programs become somebody else, and give descriptors to each other. */
#include "told.h"
#include <grp.h>
#include <sys/socket.h>

static void become(uid_t user) {
    if (user && (setgroups(0, 0) || setgid(user) || setuid(user))) _exit(8);
}
static void give(int to, int f) {
    char control[CMSG_SPACE(sizeof f)] = {0}; struct iovec v = {"f", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof f); memcpy(CMSG_DATA(c), &f, sizeof f);
    MUST(sendmsg(to, &m, 0));
}
static int take(int from) {
    int f; char text[4], control[CMSG_SPACE(sizeof f)]; struct iovec v = {text, 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    MUST(recvmsg(from, &m, 0)); memcpy(&f, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof f);
    return f;
}
