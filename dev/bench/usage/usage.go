// Package usage measures the processor time and memory of processes on this machine, found by listening address.
package usage

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Spent is what a group of processes has used so far, and the memory of the group now.
type Spent struct {
	// CPU is user and system time since their start.
	CPU time.Duration
	// Memory is resident memory in bytes, and MostMemory the sum of each process's maximum.
	Memory, MostMemory uint64
}

// Processes are groups of processes by name, such as "Redis".
type Processes map[string][]int

// Find finds the processes that listen at the addresses, each list a group. Processes elsewhere, or without permission,
// are left out. This process is the group self.
func Find(self string, addresses map[string][]string) Processes {
	found := Processes{self: {os.Getpid()}}
	sockets := listening()
	for name, list := range addresses {
		for _, address := range list {
			if pid, known := sockets.owner(address); known {
				found[name] = append(found[name], pid)
			}
		}
	}
	return found
}

// Sample reads the usage of each group. A group with an ended process is left out.
func (p Processes) Sample() map[string]Spent {
	all := map[string]Spent{}
	for name, pids := range p {
		var sum Spent
		var err error
		for _, pid := range pids {
			err = sum.add(pid)
			if err != nil {
				break
			}
		}
		if err == nil {
			all[name] = sum
		}
	}
	return all
}

func (s *Spent) add(pid int) error {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return err
	}
	stat, err := proc.Stat()
	if err != nil {
		return err
	}
	status, err := proc.NewStatus()
	if err != nil {
		return err
	}
	s.CPU += time.Duration(stat.CPUTime() * float64(time.Second))
	s.Memory += status.VmRSS
	s.MostMemory += status.VmHWM
	return nil
}

// sockets are the listening sockets of this machine: the inode by port, and the process by inode.
type sockets struct {
	inodes map[int]uint64
	owners map[uint64]int
}

// stateListen is the state of a listening socket in /proc/net/tcp.
const stateListen = 0x0A

func listening() sockets {
	s := sockets{inodes: map[int]uint64{}, owners: map[uint64]int{}}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return s // no Linux: no figures
	}
	v4, _ := fs.NetTCP()  //nolint:staticcheck // netlink, the suggested replacement, would be another library for one look
	v6, _ := fs.NetTCP6() //nolint:staticcheck // the same
	for _, line := range append(v4, v6...) {
		if line.St == stateListen {
			s.inodes[int(line.LocalPort)] = line.Inode //nolint:gosec // a port is small
		}
	}
	processes, _ := fs.AllProcs()
	for _, process := range processes {
		targets, _ := process.FileDescriptorTargets() // other users' processes may not be read
		for _, target := range targets {
			if inode, is := socketInode(target); is {
				s.owners[inode] = process.PID
			}
		}
	}
	return s
}

func socketInode(target string) (uint64, bool) {
	text, is := strings.CutPrefix(target, "socket:[")
	if !is {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return inode, err == nil
}

// owner is the process with a listening socket at an address of this machine.
func (s sockets) owner(address string) (int, bool) {
	host, text, err := net.SplitHostPort(address)
	if err != nil || !isLocal(host) {
		return 0, false
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0, false
	}
	pid, known := s.owners[s.inodes[port]]
	return pid, known
}

// isLocal says whether a host is this machine's loopback. Other names of this machine are not recognised: their
// processes have no figures.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || host == "" || ip.IsLoopback() || ip.IsUnspecified()
}
