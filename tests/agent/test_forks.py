"""What an attach leaves each later child of the trainer to pay."""

MOST_KB = 256
OWN_PAGES = """
def own_kb():
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = open('/proc/self/smaps_rollup').read().split('Private_Dirty:')[1].split()[0]
        os.write(w, told.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(w)
    with os.fdopen(r) as pipe:
        return int(pipe.read())
"""


def test_a_child_copies_no_memory_for_an_agent_it_does_not_have(trainer):
    trainer.load().do(OWN_PAGES)
    before = trainer.do("own_kb(); answer = own_kb()")
    trainer.start()
    assert trainer.do("answer = own_kb()") - before < MOST_KB
    trainer.do("lib.brrr_stop()")
    assert trainer.do("answer = own_kb()") - before < MOST_KB
