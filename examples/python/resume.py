"""A session that outlives its connection, written from what uap-hub-proto/CHOICES.md says of HUB-5-4.

Reports are numbered from 1 and kept until the hub says that it has them. When the connection is lost, the stream is opened
again, with how often that was, and what is kept is sent again.
"""

import queue
import threading
import time

import grpc

END = object()


class Session:
    """One session. Habits say their reports to it, and may wait until it was cut."""

    def __init__(self, open_call, session_id):
        self.open_call, self.session_id = open_call, session_id
        self.lock = threading.Lock()
        self.kept, self.last = [], 0
        self.is_finished = False
        self.opened, self.said = 0, None
        self.was_cut = threading.Event()

    def say(self, report):
        with self.lock:
            self.last += 1
            report.number = self.last
            self.kept.append(report)
            if self.said:
                self.said.put(report)

    def run(self, habit, acknowledges):
        """Until the hub ends the stream."""
        self.say(acknowledges)
        init = None
        while True:
            call = self.open("reports" if init else "job")
            try:
                for message in call:
                    self.acknowledged(message)
                    if init is None:
                        init = message
                        threading.Thread(target=self.work, args=(habit, init), daemon=True).start()
                return
            except grpc.RpcError as error:
                with self.lock:
                    self.said.put(END)
                    self.said = None
                print(f"session {self.session_id}: {error.code().name}", flush=True)
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    return
                self.was_cut.set()
                time.sleep(0.05)

    def open(self, wants):
        said = queue.Queue()
        with self.lock:
            for report in self.kept:
                said.put(report)
            if self.is_finished:
                said.put(END)
            self.said = said
            self.opened += 1
        metadata = [("x-session-id", self.session_id), ("x-session-resume", f"{wants} {self.opened}")]
        return self.open_call(iter(said.get, END), metadata=metadata)

    def acknowledged(self, message):
        with self.lock:
            self.kept = [report for report in self.kept if report.number > message.acknowledged]

    def work(self, habit, init):
        habit(init, self.say, self)
        with self.lock:
            self.is_finished = True
            if self.said:
                self.said.put(END)
