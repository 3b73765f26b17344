// Package usage tells what processes of this machine spend: processor time and memory, by the address they listen at.
package usage

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Spent is what a group of processes has used so far, and holds now.
type Spent struct {
	// CPU is user and system time since their start.
	CPU time.Duration
	// Memory is what they hold in memory, in bytes, and MostMemory the most each has ever held.
	Memory, MostMemory uint64
}

// Processes are groups of processes by name, such as "Redis".
type Processes map[string][]int

// Find finds who listens at the addresses, each list a group. What is not on this machine, or may not be looked at, is
// left out. This process is the group self.
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

// Sample reads what each group has spent. A group of which one process has gone is left out.
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

// sockets are those that listen on this machine: the inode by port, and the process by inode.
type sockets struct {
	inodes map[int]uint64
	owners map[uint64]int
}

// stateListen is what /proc/net/tcp calls a socket that listens.
const stateListen = 0x0A

func listening() sockets {
	s := sockets{inodes: map[int]uint64{}, owners: map[uint64]int{}}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return s // no Linux: nothing can be told
	}
	v4, _ := fs.NetTCP()  //nolint:staticcheck // netlink, which it names instead, would be a library more for one look
	v6, _ := fs.NetTCP6() //nolint:staticcheck // the same
	for _, line := range append(v4, v6...) {
		if line.St == stateListen {
			s.inodes[int(line.LocalPort)] = line.Inode //nolint:gosec // a port is small
		}
	}
	processes, _ := fs.AllProcs()
	for _, process := range processes {
		targets, _ := process.FileDescriptorTargets() // what belongs to somebody else may not be read
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

// owner is the process that listens at an address of this machine.
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

// isLocal says whether a host is this machine's loopback. Others may be this machine too, and then nothing is told of
// them.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || host == "" || ip.IsLoopback() || ip.IsUnspecified()
}
