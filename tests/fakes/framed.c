/* What a C library that is built with frame pointers, as Ubuntu's is, keeps a call's result by: at -O2
 * with -fno-omit-frame-pointer this ends in mov [rbx], rax; mov rbx, [rbp-8]; leave; ret. And what glibc has
 * in Debian's builds of 2026: mov [rbx+24], rax; pop rbx; ret. */
long framed_source(void);
void framed_keep(long *slot);
void keep_above(long *slot);

void framed_keep(long *slot)
{
    *slot = framed_source();
}

__attribute__((optimize("omit-frame-pointer"))) void keep_above(long *slot)
{
    slot[3] = framed_source();
}
