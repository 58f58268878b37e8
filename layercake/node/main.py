"""stub"""
import ssl, json, threading, hashlib, selectors, subprocess
def main_on_node(run): 
    import time, os
    print("agent", time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
    os.system("cat /proc/self/status | grep Rss; ls /; crun --version | head -1; ls /sys/fs/cgroup; ip a; unshare -m sh -c 'mkdir -p /run/x; mount -t tmpfs none /run/x; mkdir /run/x/old; pivot_root /run/x /run/x/old && echo PIVOT OK'")
    time.sleep(1000)
def main(args): ...
