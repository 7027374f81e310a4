/* hollow_driver.c - a driver of long ago: it starts, and has nothing of what mica needs. */
int cuInit(unsigned flags);

int cuInit(unsigned flags)
{
    return flags != 0;
}
