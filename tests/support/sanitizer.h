/*
 * sanitizer.h - is this build slowed down by the thread sanitizer? Then tests take fewer rounds of the same thing.
 */
#ifndef TEST_SUPPORT_SANITIZER_H
#define TEST_SUPPORT_SANITIZER_H

#if defined(__SANITIZE_THREAD__)
#define TEST_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_THREAD_SANITIZER 1
#endif
#endif
#ifndef TEST_THREAD_SANITIZER
#define TEST_THREAD_SANITIZER 0
#endif

#endif
