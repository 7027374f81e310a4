/*
 * sanitizer.h - is this build slowed down by the thread sanitizer? Then tests take fewer rounds of the same thing. And is
 * there any sanitizer that has memory of its own and turns mlock off?
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

#if defined(__SANITIZE_ADDRESS__)
#define TEST_ANY_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define TEST_ANY_SANITIZER 1
#endif
#endif
#ifndef TEST_ANY_SANITIZER
#define TEST_ANY_SANITIZER TEST_THREAD_SANITIZER
#endif

#endif
