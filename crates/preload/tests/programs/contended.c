// Two threads, COUNT times: system calls that libc makes for threads, at places that are hard to rewrite.
// Prints nothing but that it is done.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static long count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t to, from;
static long turn;
static int wait_for, event;

static void *other(void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) {
        pthread_mutex_lock(&lock);
        while (turn % 2 == 0)
            pthread_cond_wait(&changed, &lock);
        turn++;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);

        sem_wait(&to);
        sem_post(&from);

        pthread_mutex_lock(&lock);
        struct timespec short_time = {0, 50000};
        nanosleep(&short_time, NULL);
        pthread_mutex_unlock(&lock);
        sem_post(&from);

        unsigned long long one = 1;
        if (write(event, &one, sizeof one) != sizeof one)
            abort();
    }
    return NULL;
}

int main(int arguments, char **argument) {
    if (arguments != 2)
        return 2;
    count = atol(argument[1]);
    sem_init(&to, 0, 0);
    sem_init(&from, 0, 0);
    wait_for = epoll_create1(0);
    event = eventfd(0, 0);
    struct epoll_event wanted = {.events = EPOLLIN};
    epoll_ctl(wait_for, EPOLL_CTL_ADD, event, &wanted);
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, NULL))
        return 1;
    for (long i = 0; i < count; i++) {
        pthread_mutex_lock(&lock);
        while (turn % 2 == 1)
            pthread_cond_wait(&changed, &lock);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);

        sem_post(&to);
        sem_wait(&from);
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
        sem_wait(&from);

        struct epoll_event seen;
        unsigned long long value;
        if (epoll_wait(wait_for, &seen, 1, -1) != 1 || read(event, &value, sizeof value) != sizeof value)
            return 1;
    }
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
