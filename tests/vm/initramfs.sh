#!/bin/sh
# Makes the disk of a machine that boots `bcd`: a compressed initramfs with busybox, bcd, socat and their libraries.
#
#   initramfs.sh OUT KERNEL_MODULES BCD NODE_FOLDER GATEWAY_PORT
#
# KERNEL_MODULES is the folder lib/modules/VERSION of the kernel's package. NODE_FOLDER, made by the test on this machine, lies at
# the same path in the other one: its identity outlives a boot, its journal does not, as on a ramdisk.
set -eu
out=$1 modules=$2 bcd=$3 node=$4 port=$5
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/modules" "$root$node"
cp "$(command -v busybox)" "$root/bin/busybox"
for program in "$bcd" "$(command -v socat)"; do
    cp "$program" "$root/bin/"
    ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
done
cp -a "$node/." "$root$node"
rm -rf "$root$node/plugins" "$root$node"/state/journal.sqlite* "$root$node"/state/kinds
mkdir "$root$node/plugins"
# The kernel's own name of the boot, this machine's own root, and a reboot without systemd.
sed -i -e '/^boot-id-file/d' -e 's|^root = .*|root = "/"|' -e 's|^\[reboot\]|[reboot]\nprogram = ["/bin/busybox", "reboot", "-f"]|' \
    "$root$node/bcd.toml"
for module in failover net_failover virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_net; do
    find "$modules" -name "$module.ko" -exec cp {} "$root/modules/" \;
done
cat > "$root/init" <<INIT
#!/bin/busybox sh
b=/bin/busybox
\$b mount -t proc proc /proc; \$b mount -t sysfs sysfs /sys; \$b mount -t devtmpfs dev /dev
for m in failover net_failover virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_net; do
    [ -f /modules/\$m.ko ] && \$b insmod /modules/\$m.ko
done
\$b ip link set lo up; \$b ip link set eth0 up
\$b ip addr add 10.0.2.15/24 dev eth0; \$b ip route add default via 10.0.2.2
echo "BOOT \$(\$b cat /proc/sys/kernel/random/boot_id)"
# The gateway's certificate is for this address.
/bin/socat TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr TCP:10.0.2.2:$port &
while :; do RUST_LOG=info NO_COLOR=1 /bin/bcd run --config $node/bcd.toml 2>&1; \$b sleep 1; done
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) > "$out"
