package packages

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// boot starts systemd as the first process of a Debian tree. $1 is the tree and $2 an empty control group, below which
// systemd makes a group for each service. /proc/sys is read-only, because the system shares the kernel of the machine.
// The system sees no other control groups. The tree becomes the root of the mount namespace, because no user namespace
// can be made inside a chroot. Mounts are shared, or services do not see their credentials.
const boot = `set -e
echo $$ >"$2/cgroup.procs"
exec unshare --mount --pid --fork --uts --ipc --cgroup --kill-child bash -ec '
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind -o ro "$1/proc/sys" "$1/proc/sys"
mount -o remount,bind,ro "$1/proc/sys"
mount -t sysfs -o ro sysfs "$1/sys"
if [ -d /sys/fs/cgroup/systemd ]; then
  mount -t tmpfs tmpfs "$1/sys/fs/cgroup"
  mkdir "$1/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd cgroup "$1/sys/fs/cgroup/systemd"
else
  mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
fi
mount -t tmpfs tmpfs "$1/run"
cd "$1"
pivot_root . mnt
exec chroot . sh -ec "umount -l /mnt
mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd"
' bash "$1"`

// masked are units that would change the machine, or read its terminals.
var masked = []string{
	"getty.target", "console-getty.service", "systemd-sysctl.service", "systemd-modules-load.service",
	"systemd-remount-fs.service", "systemd-udevd.service", "systemd-udev-trigger.service", "systemd-binfmt.service",
	"systemd-timesyncd.service", "systemd-networkd.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
	"sys-fs-fuse-connections.mount", "proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount", "tmp.mount",
}

// system is a booted Debian system in its own namespaces. It shares the network of the test.
type system struct {
	t    *testing.T
	root string
	pid  int // of systemd
}

// bootDebian unpacks the base system, puts files into /packages and boots the system.
func bootDebian(t *testing.T, files ...string) *system {
	t.Helper()
	s := &system{t: t, root: t.TempDir()}
	if out, err := exec.Command("tar", "-xf", *base, "-C", s.root).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", *base, err, out)
	}
	if err := os.Chmod(s.root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, unit := range masked {
		if err := os.Symlink("/dev/null", filepath.Join(s.root, "etc/systemd/system", unit)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.root, "packages"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.root, "packages", filepath.Base(file)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	return s
}

// start boots the tree, and stops it when the test ends.
func (s *system) start() {
	s.t.Helper()
	group := controlGroup(s.t)
	cmd := exec.Command("bash", "-c", boot, "bash", s.root, group)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		var journal string
		if s.pid != 0 {
			journal, _ = s.try("journalctl", "--no-pager", "--unit", "msghandler", "--lines", "50")
			if first, err := os.FindProcess(s.pid); err == nil {
				_ = first.Kill() // the kernel ends the others of the namespace
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("the journal:\n%s", journal)
			s.t.Logf("systemd:\n%s", &said)
		}
	})
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid)
	servers.Eventually(s.t, time.Minute, "systemd runs", func() bool {
		text, err := os.ReadFile(children)
		if err != nil {
			s.t.Fatalf("the system has ended: %v", cmd.Wait())
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if strings.HasSuffix(program, "/systemd/systemd") {
			s.pid = pid
		}
		return s.pid != 0
	})
	servers.Eventually(s.t, time.Minute, "the system is up", func() bool {
		state, _ := s.try("systemctl", "is-system-running")
		return strings.TrimSpace(state) == "running" || strings.TrimSpace(state) == "degraded"
	})
}

// controlGroup makes a control group, in the hierarchy of systemd where the machine has several.
func controlGroup(t *testing.T) string {
	t.Helper()
	top := "/sys/fs/cgroup"
	if _, err := os.Stat(top + "/systemd"); err == nil {
		top += "/systemd"
	}
	group := filepath.Join(top, fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		servers.Eventually(t, time.Minute, "the control groups are empty", func() bool {
			return exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run() == nil
		})
	})
	return group
}

// try runs a command in the system, as root.
func (s *system) try(args ...string) (string, error) {
	tree := fmt.Sprintf("/proc/%d/root", s.pid)
	inside := []string{
		"--target", strconv.Itoa(s.pid), "--mount", "--pid", "--uts", "--ipc", "--root=" + tree, "--wd=" + tree,
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive",
	}
	out, err := exec.Command("nsenter", append(inside, args...)...).CombinedOutput()
	return string(out), err
}

// run runs a command that must succeed, and returns what it prints.
func (s *system) run(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// property asks systemd for a property of the service.
func (s *system) property(name string) string {
	s.t.Helper()
	return strings.TrimSpace(s.run("systemctl", "show", "--value", "--property", name, "msghandler.service"))
}

// answers waits until the service answers a path with 200.
func (s *system) answers(path string) {
	s.t.Helper()
	servers.Eventually(s.t, time.Minute, path+" answers", func() bool {
		response, err := http.Get("http://127.0.0.1:9091" + path)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode == http.StatusOK
	})
}

// rights are the mode and the owners of a file: "640 root msghandler".
func (s *system) rights(name string) string {
	s.t.Helper()
	return strings.TrimSpace(s.run("stat", "--format", "%a %U %G", name))
}

// write writes a file of the system. An existing file keeps its rights.
func (s *system) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.root, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// files are all paths of the system where packages put files.
func (s *system) files() map[string]bool {
	s.t.Helper()
	found := map[string]bool{}
	enabled := "var/lib/systemd/deb-systemd-helper-enabled"
	for _, top := range []string{"etc", "usr", "opt", "srv", "home", "root", enabled} {
		err := filepath.WalkDir(filepath.Join(s.root, top), func(path string, _ fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			name := strings.TrimPrefix(path, s.root)
			found[name] = !accounts[name]
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return found
}

// accounts are the files of accounts, which stay after a purge.
var accounts = map[string]bool{
	"/etc/passwd-": true, "/etc/group-": true, "/etc/shadow-": true, "/etc/gshadow-": true, "/etc/.pwd.lock": true,
	"/etc/subuid-": true, "/etc/subgid-": true,
}
