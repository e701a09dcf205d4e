# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kiln_global_optspecs
    string join \n h/help V/version
end

function __fish_kiln_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kiln_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kiln_using_subcommand
    set -l cmd (__fish_kiln_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kiln -n "__fish_kiln_needs_command" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_needs_command" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "check" -d 'Find every problem in folders of manifests, before anything boots'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "plan" -d 'Show each host\'s network at every phase and the steps Kiln would take'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "explain" -d 'Tell the long story of one diagnostic'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "agent" -d 'Change the network of this running machine, prove it, or put it back'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "net" -d 'Turn nmstate YAML into NetworkManager keyfiles and back, merge and compare'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "boot" -d 'Predict the first boot of a stock CoreOS machine'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "firstboot" -d 'Copy, hand over and report the network of a first boot, in the machine\'s initramfs'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "ignition" -d 'Validate, merge, convert and render Ignition configs'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "image" -d 'Put a machine\'s network, Ignition config and kernel arguments into CoreOS images'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "serve" -d 'Run the hub: a Kubernetes-compatible API with its state in one folder'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "crds" -d 'Print the CustomResourceDefinitions of Kiln\'s kinds, for a real cluster'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "backup" -d 'Write everything a hub keeps into one file, also while it runs'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "restore" -d 'Put a backup back: into a running hub, or into the data folder of one that does not run'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "status" -d 'Show every host of a hub and where it stands, or one host with all that is known'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "why" -d 'Explain why a host is not ready: missing stage, likeliest cause, next step'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "access" -d 'Let people and programs use the hub\'s API, and take that back'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "token" -d 'List, take back and make the tokens machines fetch their config with'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "approve" -d 'Vouch for a certificate request of a host that waits for a person'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "doctor" -d 'Look for known faults in the cluster that hosts join, and mend those that can be mended safely'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "watch" -d 'Show changes of hosts as they happen, until Ctrl-C'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "completions" -d 'Print shell completions'
complete -c kiln -n "__fish_kiln_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand check" -l format -d 'How findings are printed' -r -f -a "human\t'Like rustc'
json\t'One JSON object per line'
sarif\t'SARIF 2.1.0'
github\t'GitHub workflow commands'"
complete -c kiln -n "__fish_kiln_using_subcommand check" -l deny -d 'Treat findings of this level as errors' -r -f -a "warnings\t'Warnings end with exit code 1'"
complete -c kiln -n "__fish_kiln_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand check" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand plan" -l host -d 'Only this host' -r
complete -c kiln -n "__fish_kiln_using_subcommand plan" -s o -l output -d 'How the plan is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand plan" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand explain" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand explain" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and not __fish_seen_subcommand_from apply update run recover help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and not __fish_seen_subcommand_from apply update run recover help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and not __fish_seen_subcommand_from apply update run recover help" -f -a "apply" -d 'Change this machine\'s network to what nmstate YAML says, prove it, or put it back'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and not __fish_seen_subcommand_from apply update run recover help" -f -a "update" -d 'Change this machine\'s files, units, profiles and kernel arguments to what an Ignition config says, or put them back'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and not __fish_seen_subcommand_from apply update run recover help" -f -a "run" -d 'Keep this node as the hub declares it, its network, files and units: ask, try, prove, keep or put back, and tell'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and not __fish_seen_subcommand_from apply update run recover help" -f -a "recover" -d 'Put the old network, files and units back after a change that was not confirmed, because the agent or the machine died'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and not __fish_seen_subcommand_from apply update run recover help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -l probe -d 'What must work: gateway, dns (if they did before), tcp:HOST:PORT, ping:ADDRESS or a URL (in any case); may be given often' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -l soak -d 'How long the probes must go on passing, such as 2s or 500ms' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -l timeout -d 'How long the probes have to pass after the change' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -l checkpoint -d 'When NetworkManager goes back by itself, should this program die' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -l state-dir -d 'Folder of the journal and of what the agent remembers' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -l dry-run -d 'Print what would change and change nothing'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -l runtime -d 'Keep it until the next reboot only'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from apply" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l rules -d 'What changes take: a nodeDisruptionPolicy, or a MachineConfiguration with one in it' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l probe -d 'What must work: gateway, dns (if they did before), tcp:HOST:PORT, ping:ADDRESS or a URL (in any case); may be given often' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l soak -d 'How long the probes must go on passing, such as 2s or 500ms' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l timeout -d 'How long the probes have to pass after the change' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l checkpoint -d 'When NetworkManager goes back by itself, should this program die' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l state-dir -d 'Folder of the journal and of what the agent remembers' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l root -d 'A folder that stands for the machine' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l dry-run -d 'Print what would change and what it takes, and change nothing'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -l reboot -d 'Boot the machine when the change needs it'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from update" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from run" -l hub -d 'Address of the hub, https://HOST:PORT; without it, what the variable KILN_HUB says' -r
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from run" -l ca -d 'Certificates the hub\'s must be signed by' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from run" -l token-file -d 'File with this host\'s token, as `kiln token agent` writes it; nobody else may read it' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from run" -l state-dir -d 'Folder of the journal and of what the agent remembers' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from run" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from recover" -l state-dir -d 'Folder of the journal and of what the agent remembers' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from recover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from recover" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "apply" -d 'Change this machine\'s network to what nmstate YAML says, prove it, or put it back'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "update" -d 'Change this machine\'s files, units, profiles and kernel arguments to what an Ignition config says, or put them back'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "run" -d 'Keep this node as the hub declares it, its network, files and units: ask, try, prove, keep or put back, and tell'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "recover" -d 'Put the old network, files and units back after a change that was not confirmed, because the agent or the machine died'
complete -c kiln -n "__fish_kiln_using_subcommand agent; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -f -a "render" -d 'Render nmstate YAML, NMStateConfigs or policies to keyfiles'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -f -a "merge" -d 'Merge two folders of keyfiles by meaning; the overlay wins where both speak'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -f -a "diff" -d 'Compare two folders of keyfiles by meaning'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -f -a "capture" -d 'Turn a configured machine\'s profiles into clean keyfiles or nmstate YAML'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -f -a "preview" -d 'Show what NodeNetworkConfigurationPolicies would change on each node, how much it disturbs and what could go wrong'
complete -c kiln -n "__fish_kiln_using_subcommand net; and not __fish_seen_subcommand_from render merge diff capture preview help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from render" -l out -d 'Folder the keyfiles are written to: a new one, an empty one, or one with an earlier result' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from render" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from render" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from merge" -l out -d 'Folder the result is written to: a new one, an empty one, or one with an earlier result' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from merge" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from merge" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from diff" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from capture" -l root -d 'Root of the machine\'s file system' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from capture" -s o -l output -d 'What to print' -r -f -a "nmstate\t'One nmstate document'
keyfiles\t'Cleaned keyfiles, one after the other with their names'"
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from capture" -l out -d 'Folder the keyfiles are written to instead of being printed: a new one, an empty one, or one with an earlier result' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from capture" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from capture" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -l with -d 'Policies that are in force already' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -l state -d 'State of a node: nmstate YAML as `nmstatectl show` prints it, or a NodeNetworkState' -r
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -l state-dir -d 'Folder with a state for each node, called NODE.yaml or NODE.json' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from preview" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "render" -d 'Render nmstate YAML, NMStateConfigs or policies to keyfiles'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "merge" -d 'Merge two folders of keyfiles by meaning; the overlay wins where both speak'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "diff" -d 'Compare two folders of keyfiles by meaning'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "capture" -d 'Turn a configured machine\'s profiles into clean keyfiles or nmstate YAML'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "preview" -d 'Show what NodeNetworkConfigurationPolicies would change on each node, how much it disturbs and what could go wrong'
complete -c kiln -n "__fish_kiln_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and not __fish_seen_subcommand_from simulate help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and not __fish_seen_subcommand_from simulate help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and not __fish_seen_subcommand_from simulate help" -f -a "simulate" -d 'Predict the network of each boot phase, and why'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and not __fish_seen_subcommand_from simulate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -l kargs -d 'Kernel command line of the first boot' -r
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -l firstboot-network -d 'Keyfiles in the first-boot network area (copy-network)' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -l ignition -d 'Ignition config that writes the real root' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -l real-root -d 'Real root as it is after Ignition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -l layout -d 'Where copy-network puts its files: `boot` before coreos-installer 0.27, `initrd` since' -r -f -a "boot\t'`/boot/coreos-firstboot-network`'
initrd\t'`/etc/coreos-firstboot-network` in an appended initrd'"
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -l image-reads -d 'Where the image looks for them, when it is not where they were put' -r -f -a "boot\t'`/boot/coreos-firstboot-network`'
initrd\t'`/etc/coreos-firstboot-network` in an appended initrd'"
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -s o -l output -d 'How the prediction is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from simulate" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "simulate" -d 'Predict the network of each boot phase, and why'
complete -c kiln -n "__fish_kiln_using_subcommand boot; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and not __fish_seen_subcommand_from copy-network propagate report deliver help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and not __fish_seen_subcommand_from copy-network propagate report deliver help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and not __fish_seen_subcommand_from copy-network propagate report deliver help" -f -a "copy-network" -d 'Let the profiles left for the first boot replace those of the kernel arguments'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and not __fish_seen_subcommand_from copy-network propagate report deliver help" -f -a "propagate" -d 'Hand the network of the initramfs over to the real root'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and not __fish_seen_subcommand_from copy-network propagate report deliver help" -f -a "report" -d 'Tell the hub and the console how far this boot has come; never fails and never takes long'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and not __fish_seen_subcommand_from copy-network propagate report deliver help" -f -a "deliver" -d 'Send the reports that earlier boots left on the boot partition'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and not __fish_seen_subcommand_from copy-network propagate report deliver help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from copy-network" -l root -d 'Folder that stands for the machine; its real root is DIR/sysroot, its boot partition DIR/boot-partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from copy-network" -l boot -d 'Folder with the files of the boot partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from copy-network" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from copy-network" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from propagate" -l root -d 'Folder that stands for the machine; its real root is DIR/sysroot, its boot partition DIR/boot-partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from propagate" -l boot -d 'Folder with the files of the boot partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from propagate" -l policy -d 'How: `stock` copies unless the real root has any file, `force` copies over it, `merge` joins both by meaning; by default what the kernel argument `kiln.firstboot=` says, or `stock`' -r
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from propagate" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from propagate" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from report" -l root -d 'Folder that stands for the machine; its real root is DIR/sysroot, its boot partition DIR/boot-partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from report" -l boot -d 'Folder with the files of the boot partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from report" -l point -d 'How far the boot has come' -r -f -a "network\t'In the initramfs: the network was tried, Ignition is about to fetch'
ignition-failed\t'In the initramfs: Ignition failed'
leaving\t'In the initramfs: Ignition is done, the network is about to be handed over'
real-root\t'The real root runs'
kubelet-key\t'The kubelet has made the key it will ask a certificate for; waits for it'"
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from report" -l policy -d 'The policy that `propagate` will have, for `leaving`; by default as there' -r
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from report" -l time-limit -d 'How long sending may take, in seconds (20); with `kubelet-key`, how long the key may take (600)' -r
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from report" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from deliver" -l root -d 'Folder that stands for the machine; its real root is DIR/sysroot, its boot partition DIR/boot-partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from deliver" -l boot -d 'Folder with the files of the boot partition' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from deliver" -l time-limit -d 'How long it may take, in seconds' -r
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from deliver" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from deliver" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from help" -f -a "copy-network" -d 'Let the profiles left for the first boot replace those of the kernel arguments'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from help" -f -a "propagate" -d 'Hand the network of the initramfs over to the real root'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from help" -f -a "report" -d 'Tell the hub and the console how far this boot has come; never fails and never takes long'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from help" -f -a "deliver" -d 'Send the reports that earlier boots left on the boot partition'
complete -c kiln -n "__fish_kiln_using_subcommand firstboot; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -f -a "validate" -d 'Find every mistake in Ignition configs, with line and column'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -f -a "merge" -d 'Merge configs as Ignition does; later files win'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -f -a "convert" -d 'Convert between spec versions and list what is lost'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -f -a "pointer" -d 'Print a pointer config that makes a node fetch its real config'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -f -a "render" -d 'Render a pool\'s MachineConfigs as the machine-config-operator does'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and not __fish_seen_subcommand_from validate merge convert pointer render help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from validate" -l format -d 'How findings are printed' -r -f -a "human\t'Like rustc'
json\t'One JSON object per line'
sarif\t'SARIF 2.1.0'
github\t'GitHub workflow commands'"
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from validate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from validate" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from merge" -l provenance -d 'Also say which file each entry came from'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from merge" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from merge" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from convert" -l to -d 'Spec version to write, such as 3.4.0 or 2.2.0' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from convert" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from convert" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l source -d 'Where the real config is' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l host -d 'A host of the hub, which gets a new boot token of its own: NAME or NAMESPACE/NAME; may be given several times' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l pool -d 'A pool of the hub, whose machines share its token: NAME or NAMESPACE/NAME' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l name -d 'Names of machines from a pattern such as worker-{}: hosts of the hub, or with --pool only names for the command' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l count -d 'How many machines the pattern stands for' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l platform -d 'Also print the command that makes the machines: aws, azure, gcp, hetzner, ibmcloud, kubevirt, metal, openstack, qemu, vmware' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l image -d 'The image in that command' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l endpoint -d 'Where machines reach the hub [default: the server of the kubeconfig]' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l out -d 'Write the pointer here, readable by you alone; a folder for several; `-` is standard output [default with --platform: HOST.ign]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l ca -d 'PEM file with the authorities to trust [default with --host: the hub\'s]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l header -d 'Request header `Name: value`; `Name: @FILE` reads the value from a file, so that secrets stay out of argv' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l verification -d 'sha512-… or sha256-… of the config' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l spec -d 'Spec version to write' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l force -d 'Replace files that exist'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -l replace -d 'Replace the node\'s config instead of merging into it'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from pointer" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from render" -l pool -d 'The pool to render' -r
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from render" -s o -l output -d '`human` prints the Ignition config and tells the rest on standard error; the others print one document' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from render" -l overlay -d 'Print a MachineConfig that keeps profiles written at run time in memory: a reboot returns to what MachineConfigs own'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from render" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from render" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from help" -f -a "validate" -d 'Find every mistake in Ignition configs, with line and column'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from help" -f -a "merge" -d 'Merge configs as Ignition does; later files win'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from help" -f -a "convert" -d 'Convert between spec versions and list what is lost'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from help" -f -a "pointer" -d 'Print a pointer config that makes a node fetch its real config'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from help" -f -a "render" -d 'Render a pool\'s MachineConfigs as the machine-config-operator does'
complete -c kiln -n "__fish_kiln_using_subcommand ignition; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "inspect" -d 'Show what an image is and what has been put into it'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "customize" -d 'Write a copy of an image with a machine\'s network, Ignition config and kernel arguments'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "network" -d 'List, show, extract or remove the network files in an image'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "reset" -d 'Give an image back its original bytes'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "import" -d 'Take an image into a store, from which each further host costs kilobytes'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "compose" -d 'Compose one host\'s image from a base in the store'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "serve" -d 'Serve the images of a store over HTTP'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "list" -d 'List the bases and images of a store'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "forget" -d 'Remove a host\'s images, or a base, from a store'
complete -c kiln -n "__fish_kiln_using_subcommand image; and not __fish_seen_subcommand_from inspect customize network reset import compose serve list forget help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from inspect" -l format -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from inspect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from inspect" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -s o -l output -d 'Where the result goes; a name ending in .gz is compressed; `-` is standard output' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l network -d 'nmstate YAML or NMStateConfig, rendered to keyfiles for the first boot' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l network-dir -d 'Folder of NetworkManager keyfiles for the first boot; written with mode 0600 whatever they have here' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l ignition -d 'Ignition config of the first boot' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l karg-append -d 'Kernel argument to add to every boot' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l karg-delete -d 'Kernel argument to take away from every boot' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l url -d 'Where OUT will be served from, for the clusterOSImage line' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l format -d 'How the result is described' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l force-persist-ip -d 'Keep the network of the first boot on the installed system even if Ignition brings its own'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -l force -d 'Replace an existing OUT (IN itself never needs it)'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from customize" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from network" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from network" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from network" -a "list" -d 'Print the names'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from network" -a "show" -d 'Print the files; secrets are hidden'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from network" -a "extract" -d 'Write the files to a folder, mode 0600'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from network" -a "remove" -d 'Take the network files out of the image'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from network" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from reset" -s o -l output -d 'Where the result goes instead of replacing the image' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from reset" -l force -d 'Replace an existing OUT'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from reset" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from reset" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -l store -d 'Folder of the store; made if it is not there' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -l name -d 'Name of the base in the store and in URLs [default: the file\'s name without its extensions]' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -l format -d 'How the result is described' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -l link -d 'Link the file into the store instead of copying it; nobody may change it afterwards'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -l plain -d 'Store it uncompressed, for clients that take no .gz'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -l gzip -d 'Store it as .gz, compressed once'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from import" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l store -d 'Folder of the store' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l base -d 'Name of the base' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l host -d 'Name of the host' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l network -d 'nmstate YAML or NMStateConfig, rendered to keyfiles for the first boot' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l network-dir -d 'Folder of NetworkManager keyfiles for the first boot; written with mode 0600 whatever they have here' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l ignition -d 'Ignition config of the first boot' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l karg-append -d 'Kernel argument to add to every boot' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l karg-delete -d 'Kernel argument to take away from every boot' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -s o -l output -d 'Also write the whole image to a file; `-` is standard output' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l url -d 'Where `kiln image serve` is reached, for the URL' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l expires -d 'How long the URL of an image with secrets works: seconds, or a number with s, m, h or d' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l format -d 'How the result is described' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l force-persist-ip -d 'Keep the network of the first boot on the installed system even if Ignition brings its own'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l force -d 'Replace an existing OUT'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -l sha256 -d 'Take the sha256 of a live ISO or plain raw disk, too, which reads all of it'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from compose" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from serve" -l store -d 'Folder of the store' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from serve" -l listen -d 'Address and port to listen on' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from serve" -l tls-cert -d 'Certificate chain in PEM format; with it, only HTTPS is spoken' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from serve" -l tls-key -d 'Private key of the certificate in PEM format' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from serve" -l max-connections -d 'Connections served at once; more wait' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from serve" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from list" -l store -d 'Folder of the store' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from list" -l format -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from forget" -l store -d 'Folder of the store' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from forget" -l host -d 'Host whose image is forgotten: all of them, or the one of --base' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from forget" -l base -d 'Base that is forgotten, once no host\'s image is made of it' -r
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from forget" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from forget" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "inspect" -d 'Show what an image is and what has been put into it'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "customize" -d 'Write a copy of an image with a machine\'s network, Ignition config and kernel arguments'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "network" -d 'List, show, extract or remove the network files in an image'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "reset" -d 'Give an image back its original bytes'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "import" -d 'Take an image into a store, from which each further host costs kilobytes'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "compose" -d 'Compose one host\'s image from a base in the store'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Serve the images of a store over HTTP'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the bases and images of a store'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "forget" -d 'Remove a host\'s images, or a base, from a store'
complete -c kiln -n "__fish_kiln_using_subcommand image; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l data-dir -d 'Folder for state, keys and the administrator\'s kubeconfig; made with mode 0700 if it does not exist [KILN_DATA_DIR, dataDir]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l listen -d 'Address and port of the API (HTTPS); port 0 takes a free one [KILN_LISTEN, listen; 127.0.0.1:6443]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l node-listen -d 'Address and port for machines only: /ignition, /config/POOL and health, nothing else [KILN_NODE_LISTEN, nodeListen]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l node-url -d 'Where machines reach the hub, for the user-data of pools; a load balancer in front of replicas, say [KILN_NODE_URL, nodeUrl; --node-listen or --listen with the first --tls-name]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l node-ca -d 'Authorities (PEM) machines trust there [KILN_NODE_CA, nodeCa; the hub\'s own]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l tls-certificate -d 'Certificate chain (PEM) that machines are shown on --node-listen; read anew when it changes. Without it the hub\'s own authority signs one [KILN_TLS_CERTIFICATE, tlsCertificate]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l tls-key -d 'Key of that certificate (PEM) [KILN_TLS_KEY, tlsKey]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l tls-name -d 'Name or address clients use, besides the one listened on; may be repeated [KILN_TLS_NAMES, tlsNames]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l config -d 'YAML file with settings [KILN_CONFIG]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l encryption-key-file -d 'Key that seals Secrets on the disk: 32 bytes in base64, mode 0600; made if nothing is sealed yet [KILN_ENCRYPTION_KEY_FILE, encryptionKeyFile; DIR/encryption.key]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l encryption-passphrase-file -d 'Passphrase instead of a key, at least 12 bytes [KILN_ENCRYPTION_PASSPHRASE_FILE, encryptionPassphraseFile]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l previous-key-file -d 'The key until now: Secrets are sealed anew with the new one [KILN_PREVIOUS_KEY_FILE, previousKeyFile]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l previous-passphrase-file -d 'The passphrase until now [KILN_PREVIOUS_PASSPHRASE_FILE, previousPassphraseFile]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l audit-megabytes -d 'MiB of DIR/audit.log, after which a new file is begun [KILN_AUDIT_MEGABYTES, auditMegabytes; 64]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l audit-keep -d 'Old files of the audit log that are kept [KILN_AUDIT_KEEP, auditKeep; 5]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l shutdown-seconds -d 'How long requests may take after the hub was asked to stop [KILN_SHUTDOWN_SECONDS, shutdownSeconds; 5]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l log -d 'What is logged: error, warn, info, debug or trace [KILN_LOG, log; info]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l kubeconfig -d 'With --kubernetes: where that server is [default: the pod\'s service account, then KUBECONFIG]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l metrics-listen -d 'With --kubernetes: address and port for /metrics, /healthz and /readyz, without TLS [KILN_METRICS_LISTEN, metricsListen; none]' -r
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l install-crds -d 'What is done about definitions (CRDs) of Kiln\'s kinds at start; without it, Kiln\'s own are kept up to date, and with --kubernetes nothing is done [KILN_INSTALL_CRDS, installCrds]' -r -f -a "never\t'Nothing: somebody else installs them'
missing\t'Those that are not there are created'"
complete -c kiln -n "__fish_kiln_using_subcommand serve" -l kubernetes -d 'Run only the controllers, over a real API server with Kiln\'s definitions; of several replicas one leads'
complete -c kiln -n "__fish_kiln_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand serve" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand crds" -s o -l output -d 'How they are printed' -r -f -a "yaml\t'One document each'
json\t'One List'"
complete -c kiln -n "__fish_kiln_using_subcommand crds" -l native -d 'Only Kiln\'s own kinds (the default): on OpenShift the dialect kinds belong to other operators'
complete -c kiln -n "__fish_kiln_using_subcommand crds" -l all -d 'Kiln\'s own kinds and those of the dialects, for a cluster that has none of them'
complete -c kiln -n "__fish_kiln_using_subcommand crds" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand crds" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand backup" -l data-dir -d 'The hub\'s data folder [KILN_DATA_DIR]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand backup" -l with-authority -d 'Put the authority and its key into the file, too: whoever has it can make credentials for anybody'
complete -c kiln -n "__fish_kiln_using_subcommand backup" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand backup" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand restore" -l data-dir -d 'The hub\'s data folder; made with mode 0700 if it does not exist [KILN_DATA_DIR]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand restore" -l authority -d 'Which authority the hub has afterwards; a hub that runs keeps its own' -r -f -a "keep\t'That of the folder, otherwise that of the backup, otherwise a new one'
backup\t'That of the backup'
new\t'A new one: every certificate issued before is worthless'"
complete -c kiln -n "__fish_kiln_using_subcommand restore" -l replace -d 'Replace the state that is in the folder, or that of the hub that runs there'
complete -c kiln -n "__fish_kiln_using_subcommand restore" -l forget-tokens -d 'Forget all tokens: those that were revoked after the backup would be valid again'
complete -c kiln -n "__fish_kiln_using_subcommand restore" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand restore" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand status" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand status" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand status" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand status" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand why" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand why" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand why" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand why" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand why" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand access; and not __fish_seen_subcommand_from grant list revoke help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand access; and not __fish_seen_subcommand_from grant list revoke help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand access; and not __fish_seen_subcommand_from grant list revoke help" -f -a "grant" -d 'Let somebody in: writes a kubeconfig for kubectl, oc and kiln'
complete -c kiln -n "__fish_kiln_using_subcommand access; and not __fish_seen_subcommand_from grant list revoke help" -f -a "list" -d 'Show who was let in, as what and until when'
complete -c kiln -n "__fish_kiln_using_subcommand access; and not __fish_seen_subcommand_from grant list revoke help" -f -a "revoke" -d 'Take a grant back, from now on'
complete -c kiln -n "__fish_kiln_using_subcommand access; and not __fish_seen_subcommand_from grant list revoke help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -l role -d 'What they may do' -r -f -a "viewer\t'Read everything but Secrets'
admin\t'Everything'
host\t'What one machine may do: read its own Host and write its status'"
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -l host -d 'With `--role host`: which Host the identity is for' -r
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -l days -d 'For how many days; 0 means until it is taken back' -r
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -l out -d 'Write the kubeconfig to this file, readable by you alone' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -l force -d 'Replace the file if it exists'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from grant" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from list" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from list" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from list" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from revoke" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from revoke" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from revoke" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from help" -f -a "grant" -d 'Let somebody in: writes a kubeconfig for kubectl, oc and kiln'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show who was let in, as what and until when'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Take a grant back, from now on'
complete -c kiln -n "__fish_kiln_using_subcommand access; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand token; and not __fish_seen_subcommand_from list revoke rotate agent help" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand token; and not __fish_seen_subcommand_from list revoke rotate agent help" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand token; and not __fish_seen_subcommand_from list revoke rotate agent help" -f -a "list" -d 'Show every token and where it stands; never the token itself'
complete -c kiln -n "__fish_kiln_using_subcommand token; and not __fish_seen_subcommand_from list revoke rotate agent help" -f -a "revoke" -d 'Take a host\'s or a pool\'s token back: no machine gets a config with it from now on'
complete -c kiln -n "__fish_kiln_using_subcommand token; and not __fish_seen_subcommand_from list revoke rotate agent help" -f -a "rotate" -d 'Make a new token; a pool\'s old one stays valid for machines that boot just now'
complete -c kiln -n "__fish_kiln_using_subcommand token; and not __fish_seen_subcommand_from list revoke rotate agent help" -f -a "agent" -d 'Write the token with which the agent on a host\'s node speaks to the hub'
complete -c kiln -n "__fish_kiln_using_subcommand token; and not __fish_seen_subcommand_from list revoke rotate agent help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from list" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from list" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from list" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from revoke" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from revoke" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from revoke" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from rotate" -l out -d 'Write a host\'s new token to this file, readable by you alone, instead of standard output' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from rotate" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from rotate" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from rotate" -l force -d 'Replace the file if it exists'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from rotate" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from rotate" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -s o -l output -d 'Where the token is written, readable by you alone' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -l hub-namespace -d 'The namespace the hub runs in, when more than one has a key' -r
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -l force -d 'Replace the file if it exists'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -l renew -d 'Count the host\'s token up first: every token written before is worth nothing from then on'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from agent" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show every token and where it stands; never the token itself'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Take a host\'s or a pool\'s token back: no machine gets a config with it from now on'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "rotate" -d 'Make a new token; a pool\'s old one stays valid for machines that boot just now'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "agent" -d 'Write the token with which the agent on a host\'s node speaks to the hub'
complete -c kiln -n "__fish_kiln_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand approve" -l request -d 'The request, when more than one waits; `kiln status HOST -o yaml` shows them' -r
complete -c kiln -n "__fish_kiln_using_subcommand approve" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand approve" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand approve" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand approve" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -l kubeconfig -d 'Kubeconfig of the cluster itself; no hub is asked then unless one is named' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -l hub-kubeconfig -d 'Kubeconfig of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -l data-dir -d 'Use the hub\'s kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -l management-kubeconfig -d 'Kubeconfig of the cluster in which the hosted control plane runs [default: the hub]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -l control-plane-namespace -d 'Namespace of the hosted control plane [default: NAMESPACE-NAME, as HyperShift names it]' -r
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -s o -l output -d 'How it is printed' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -l fix -d 'Mend what can be mended without making anything worse'
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand watch" -l kubeconfig -d 'Credentials and address of the hub [default: KUBECONFIG, then ~/.kube/config]' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand watch" -l data-dir -d 'Use the kubeconfig that `kiln serve` wrote into this folder' -r -F
complete -c kiln -n "__fish_kiln_using_subcommand watch" -s o -l output -d 'How it is printed; json gives one line per change' -r -f -a "human\t'For reading'
json\t'One JSON document'
yaml\t'One YAML document'"
complete -c kiln -n "__fish_kiln_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kiln -n "__fish_kiln_using_subcommand watch" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand completions" -s h -l help -d 'Print help'
complete -c kiln -n "__fish_kiln_using_subcommand completions" -s V -l version -d 'Print version'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "check" -d 'Find every problem in folders of manifests, before anything boots'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "plan" -d 'Show each host\'s network at every phase and the steps Kiln would take'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "explain" -d 'Tell the long story of one diagnostic'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "agent" -d 'Change the network of this running machine, prove it, or put it back'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "net" -d 'Turn nmstate YAML into NetworkManager keyfiles and back, merge and compare'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "boot" -d 'Predict the first boot of a stock CoreOS machine'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "firstboot" -d 'Copy, hand over and report the network of a first boot, in the machine\'s initramfs'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "ignition" -d 'Validate, merge, convert and render Ignition configs'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "image" -d 'Put a machine\'s network, Ignition config and kernel arguments into CoreOS images'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "serve" -d 'Run the hub: a Kubernetes-compatible API with its state in one folder'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "crds" -d 'Print the CustomResourceDefinitions of Kiln\'s kinds, for a real cluster'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "backup" -d 'Write everything a hub keeps into one file, also while it runs'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "restore" -d 'Put a backup back: into a running hub, or into the data folder of one that does not run'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "status" -d 'Show every host of a hub and where it stands, or one host with all that is known'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "why" -d 'Explain why a host is not ready: missing stage, likeliest cause, next step'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "access" -d 'Let people and programs use the hub\'s API, and take that back'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "token" -d 'List, take back and make the tokens machines fetch their config with'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "approve" -d 'Vouch for a certificate request of a host that waits for a person'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "doctor" -d 'Look for known faults in the cluster that hosts join, and mend those that can be mended safely'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "watch" -d 'Show changes of hosts as they happen, until Ctrl-C'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "completions" -d 'Print shell completions'
complete -c kiln -n "__fish_kiln_using_subcommand help; and not __fish_seen_subcommand_from check plan explain agent net boot firstboot ignition image serve crds backup restore status why access token approve doctor watch completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from agent" -f -a "apply" -d 'Change this machine\'s network to what nmstate YAML says, prove it, or put it back'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from agent" -f -a "update" -d 'Change this machine\'s files, units, profiles and kernel arguments to what an Ignition config says, or put them back'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from agent" -f -a "run" -d 'Keep this node as the hub declares it, its network, files and units: ask, try, prove, keep or put back, and tell'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from agent" -f -a "recover" -d 'Put the old network, files and units back after a change that was not confirmed, because the agent or the machine died'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "render" -d 'Render nmstate YAML, NMStateConfigs or policies to keyfiles'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "merge" -d 'Merge two folders of keyfiles by meaning; the overlay wins where both speak'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "diff" -d 'Compare two folders of keyfiles by meaning'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "capture" -d 'Turn a configured machine\'s profiles into clean keyfiles or nmstate YAML'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "preview" -d 'Show what NodeNetworkConfigurationPolicies would change on each node, how much it disturbs and what could go wrong'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from boot" -f -a "simulate" -d 'Predict the network of each boot phase, and why'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from firstboot" -f -a "copy-network" -d 'Let the profiles left for the first boot replace those of the kernel arguments'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from firstboot" -f -a "propagate" -d 'Hand the network of the initramfs over to the real root'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from firstboot" -f -a "report" -d 'Tell the hub and the console how far this boot has come; never fails and never takes long'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from firstboot" -f -a "deliver" -d 'Send the reports that earlier boots left on the boot partition'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from ignition" -f -a "validate" -d 'Find every mistake in Ignition configs, with line and column'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from ignition" -f -a "merge" -d 'Merge configs as Ignition does; later files win'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from ignition" -f -a "convert" -d 'Convert between spec versions and list what is lost'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from ignition" -f -a "pointer" -d 'Print a pointer config that makes a node fetch its real config'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from ignition" -f -a "render" -d 'Render a pool\'s MachineConfigs as the machine-config-operator does'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "inspect" -d 'Show what an image is and what has been put into it'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "customize" -d 'Write a copy of an image with a machine\'s network, Ignition config and kernel arguments'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "network" -d 'List, show, extract or remove the network files in an image'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "reset" -d 'Give an image back its original bytes'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "import" -d 'Take an image into a store, from which each further host costs kilobytes'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "compose" -d 'Compose one host\'s image from a base in the store'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "serve" -d 'Serve the images of a store over HTTP'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "list" -d 'List the bases and images of a store'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from image" -f -a "forget" -d 'Remove a host\'s images, or a base, from a store'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from access" -f -a "grant" -d 'Let somebody in: writes a kubeconfig for kubectl, oc and kiln'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from access" -f -a "list" -d 'Show who was let in, as what and until when'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from access" -f -a "revoke" -d 'Take a grant back, from now on'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "list" -d 'Show every token and where it stands; never the token itself'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "revoke" -d 'Take a host\'s or a pool\'s token back: no machine gets a config with it from now on'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "rotate" -d 'Make a new token; a pool\'s old one stays valid for machines that boot just now'
complete -c kiln -n "__fish_kiln_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "agent" -d 'Write the token with which the agent on a host\'s node speaks to the hub'
