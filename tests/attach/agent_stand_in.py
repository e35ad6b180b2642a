# Run inside a child by its text, after a line that sets PATH and OPTIONS.
def serve():
    try:
        import json
        import os
        import socket
        import struct
        import time

        listener = socket.socket(socket.AF_UNIX)
        listener.bind(PATH)  # noqa: F821
        listener.listen(4)
        hello = {"wire": 1, "pid": os.getpid(), "options": OPTIONS, "agent": AGENT}  # noqa: F821
        body = json.dumps(hello).encode()
        kept = []
        while True:
            connection, _ = listener.accept()
            connection.sendall(struct.pack("<IHHq", len(body), 1, 0, time.time_ns()) + body)
            kept.append(connection)
    except Exception:  # noqa: BLE001
        pass


import _thread  # noqa: E402

_thread.start_new_thread(serve, ())
