# What a job may try against the machine that it runs on: each line says whether it worked.
cd /opt/kedge || exit 1
try() {
    name=$1
    shift
    if timeout 10 "$@" >/dev/null 2>&1; then echo "ATTACK $name: done"; else echo "ATTACK $name: refused"; fi
}
try "become root" sudo -n true
try "read the token" sudo -n cat /var/lib/kedge/api.curl
try "read the token as oneself" cat /var/lib/kedge/api.curl
try "stop the deadline" sudo -n systemctl stop kedge-deadline.timer
try "stop the deadline by systemd" systemctl --no-ask-password stop kedge-deadline.timer
try "rewrite the agent" sh -c 'echo "# mine" >>agent/kedge_agent/main.py'
try "rewrite the launcher" sh -c 'cp bin/kedge-agent mine && mv -f mine bin/kedge-agent'
try "replace the agent" mv agent agent.old
try "replace the programs" mv bin bin.old
try "move the deadline" sh -c 'sed s/deadline/later/ machine.json >mine && mv -f mine machine.json'
try "extend its own life" bin/kedge-agent extend --deadline "$(($(date +%s) + 90000))"
try "extend its own life as root" sudo -n bin/kedge-agent extend --deadline "$(($(date +%s) + 90000))"
try "ask root to extend its life" sudo -n /bin/sh /opt/kedge/boot/ask.sh extend "$(($(date +%s) + 90000))"
try "arm another deadline" sh /var/lib/kedge/arm.sh "$(($(date +%s) + 90000))"
try "arm another deadline as root" sudo -n /bin/sh /var/lib/kedge/arm.sh "$(($(date +%s) + 90000))"
try "rewrite what arms the deadline" sh -c 'echo "exit 0" >/var/lib/kedge/arm.sh'
try "rewrite the deadline" sh -c 'for file in /var/lib/kedge/*.deadline; do echo 9999999999 >"$file" || exit 1; done'
try "rewrite what root runs" sh -c 'echo "# mine" >>boot/prepare.sh'
try "replace what root runs" mv boot boot.old
try "replace where root mounts" sh -c 'ln -s /etc mine && mv -T data data.old && mv -T mine data'
try "replace where root writes" sh -c 'rm -f boot.jsonl && ln -s /etc/passwd boot.jsonl'
try "ask root for more" sudo -n /bin/sh boot/ask.sh sh -c id
try "ask root for another's process" sudo -n /bin/sh /opt/kedge/boot/ask.sh scope 1
try "ask root for two processes" sudo -n /bin/sh /opt/kedge/boot/ask.sh scope "$$ 1"
# What a shell of the administrator's would do, if it read it.
echo 'touch "/tmp/entered-by-$(id -un)"' >>activate.sh
echo "ATTACKS over"
