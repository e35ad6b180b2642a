/* What a C library that is built with frame pointers, as Ubuntu's is, keeps a call's result by: at -O2
 * with -fno-omit-frame-pointer this ends in mov [rbx], rax; mov rbx, [rbp-8]; leave; ret. */
long framed_source(void);
void framed_keep(long *slot);

void framed_keep(long *slot)
{
    *slot = framed_source();
}
