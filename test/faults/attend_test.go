package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/wire"
)

// The producers with the SDK serve no port in these rows: they attend.
var attendRows = []row{
	{name: "F50", world: options{attend: true}, fault: nothing, judge: theyAttended},
	{
		name: "F50_question", leaves: true, world: options{attend: true, cutAt: cutBeforeTaken}, fault: nothing,
		judge: streamsWereCut,
	},
	{
		name: "F50_taken", leaves: true, world: options{attend: true, cutAt: cutBeforeAnswer}, fault: nothing,
		judge: streamsWereCut,
	},
	{
		name: "F50_answered", leaves: true, world: options{attend: true, cutAt: cutAfterAnswer}, fault: nothing,
		judge: streamsWereCut,
	},
	{
		name: "F50_kill", copies: true, leavesMarkers: true, lasting: true, world: options{attend: true},
		fault: killHolders, judge: theyAttended,
	},
	{name: "F50_stop", lasting: true, world: options{attend: true}, fault: rollUnderLoad, judge: theyAttended},
	{
		name: "F50_redis", copies: true, leavesMarkers: true, lasting: true,
		world: options{attend: true, wired: true}, fault: cutHolderOff, judge: theyAttended,
	},
	{name: "F50_silent", world: options{attend: true}, fault: silentReplicas, judge: theyAttended},
	{name: "F50_namespace", alone: true, short: true, fault: sendFromNowhere, judge: theyAttended},
}

// The steps of a question at which its stream is cut.
const (
	cutBeforeTaken  = "the question was read"
	cutBeforeAnswer = "the question was taken"
	cutAfterAnswer  = "the answer was written"
)

// cutOneOf: the stream of one question in so many is cut.
const cutOneOf = 4

// attended is a stream of a producer under test. It notes the verdicts, and is cut at a step.
type attended struct {
	grpc.ClientStream
	witness *witness
	cutAt   string
	cuts    *atomic.Int64
	end     context.CancelFunc
	number  atomic.Int64
}

// attendingThrough are the options of a producer that attends.
func (w *world) attendingThrough(of *witness) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if method != pb.MessageHandlerService_Attend_FullMethodName {
			return open(ctx, desc, conn, method, options...)
		}
		ctx, cancel := context.WithCancel(ctx)
		stream, err := open(ctx, desc, conn, method, options...)
		if err != nil {
			cancel()
			return nil, err
		}
		return &attended{ClientStream: stream, witness: of, cutAt: w.options.cutAt, cuts: &w.cuts, end: cancel}, nil
	})}
}

// cut ends the stream at a step of one question in a few.
func (a *attended) cut(step string) error {
	if a.cutAt != step || a.number.Add(1)%cutOneOf != 0 {
		return nil
	}
	a.cuts.Add(1)
	a.end()
	return status.Error(codes.Unavailable, "cut when "+step)
}

// RecvMsg implements grpc.ClientStream.
func (a *attended) RecvMsg(m any) error {
	if err := a.ClientStream.RecvMsg(m); err != nil {
		a.end()
		return err
	}
	if r, is := m.(*pb.AttendResponse); is && r.GetQuestion() != nil {
		return a.cut(cutBeforeTaken)
	}
	return nil
}

// SendMsg implements grpc.ClientStream.
func (a *attended) SendMsg(m any) error {
	answer := m.(*pb.AttendRequest).GetAnswer()
	if answer == nil {
		return a.ClientStream.SendMsg(m)
	}
	if err := a.cut(cutBeforeAnswer); err != nil {
		return err
	}
	a.witness.said(answer.GetConfirm())
	err := a.ClientStream.SendMsg(m)
	return errors.Join(err, a.cut(cutAfterAnswer))
}

// theyAttended demands that the coordinators have asked over streams.
func theyAttended(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	counts := map[string]int{}
	for _, outcome := range []string{"answered", "failed", "unanswered", "nobody", "late"} {
		counts[outcome] = w.counted(fmt.Sprintf("msghandler_attend_questions_total{outcome=%q}", outcome))
	}
	t.Logf("questions: %v", counts)
	if counts["answered"] == 0 {
		t.Error("no question was answered over a stream: the row proves nothing")
	}
}

func streamsWereCut(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	theyAttended(t, w, l, end)
	if t.Logf("streams were cut %d times", w.cuts.Load()); w.cuts.Load() < 5 {
		t.Error("hardly a stream was cut: the row proves little")
	}
}

// killHolders kills one coordinator after the other while messages come.
func killHolders(ctx context.Context, w *world, _ *rand.Rand) {
	for _, c := range w.coordinators {
		pause(ctx, time.Second)
		w.ledger.Fault("SIGKILL to " + c.grpc)
		_ = w.end(c, syscall.SIGKILL)
		pause(ctx, time.Second)
		w.start(c)
		c.Ready(c.http)
		w.ledger.Fault("ready again: " + c.grpc)
	}
}

// cutHolderOff cuts one coordinator after the other off from Redis, for longer than an ask takes.
func cutHolderOff(ctx context.Context, w *world, _ *rand.Rand) {
	for _, c := range w.coordinators {
		pause(ctx, time.Second)
		c.redis.Cut()
		w.ledger.Fault(c.grpc + " is cut off from Redis")
		pause(ctx, 4*time.Second)
		c.redis.Restore()
		w.ledger.Fault("repaired")
		c.Ready(c.http)
	}
}

// silentReplicas attend beside the producers of the load, at every coordinator, and never answer.
func silentReplicas(ctx context.Context, w *world, _ *rand.Rand) {
	var taken atomic.Int64
	for _, c := range w.coordinators {
		for _, name := range []string{"forgetful", "kept", "sqlite", "postgresql"} {
			stream, err := pb.NewMessageHandlerServiceClient(w.dial(c)).Attend(w.t.Context())
			w.must(err)
			w.must(stream.Send(&pb.AttendRequest{Kind: &pb.AttendRequest_Hello{
				Hello: &pb.AttendHello{Producer: name, Instance: "silent"},
			}}))
			go func() {
				for {
					if r, err := stream.Recv(); err != nil {
						return
					} else if r.GetQuestion() != nil {
						taken.Add(1)
					}
				}
			}()
		}
	}
	<-ctx.Done()
	if w.t.Logf("the silent replicas took %d questions", taken.Load()); taken.Load() == 0 {
		w.t.Error("no silent replica was asked: the row proves nothing")
	}
}

// nowhereVariable makes this binary a producer in a network namespace of its own, and holds its task.
const nowhereVariable = "FAULTS_NOWHERE"

// nowhere is the task: which ids to send, and the socket that leads to a coordinator.
type nowhere struct {
	Socket string
	IDs    []string
}

// beNowhere sends the messages and says so, and answers questions until the test ends.
func beNowhere(config string) error {
	var task nowhere
	if err := json.Unmarshal([]byte(config), &task); err != nil {
		return err
	}
	sdk, err := producer.New(producer.Config{
		Name: peerName, Coordinator: "127.0.0.1:1", Markers: memory.New(), Logger: quiet(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", task.Socket)
		})},
	})
	if err != nil {
		return err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	fmt.Println("interfaces", len(interfaces))
	for _, id := range task.IDs {
		m := producer.Message{
			ID: id, Exchange: exchange, RoutingKey: peerName, Headers: headersOf(id), Body: []byte("paid"),
		}
		if err := sdk.Send(context.Background(), m, func(context.Context) error { return nil }); err != nil {
			return err
		}
		fmt.Println("sent", id)
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// sendFromNowhere runs a producer in a network namespace without a network: nothing can connect to it, not even this
// machine. It reaches the coordinator by a socket in the file system. The namespace needs root, or else a user
// namespace.
func sendFromNowhere(ctx context.Context, w *world, _ *rand.Rand) {
	socket := filepath.Join(w.t.TempDir(), "coordinator")
	w.relayUnix(socket, w.coordinators[0].grpc)
	task := nowhere{Socket: socket}
	for i := range 20 {
		id := fmt.Sprint(1000 + i)
		task.IDs = append(task.IDs, id)
		w.paid(id)
		w.ledger.Accepted(key(id))
		w.ledger.Decide(key(id), Committed)
	}
	config, err := json.Marshal(task)
	w.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), nowhereVariable+"="+string(config)), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	stdin, err := cmd.StdinPipe()
	w.must(err)
	stdout, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	w.t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // it ends with its input
	})
	lines := bufio.NewScanner(stdout)
	for n := 0; n < len(task.IDs) && lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "sent ") {
			n++
		} else {
			w.t.Logf("the producer has %s", line)
			if line != "interfaces 1" {
				w.t.Errorf("the producer is not alone in its namespace: %s", line)
			}
		}
	}
}

// relayUnix passes what comes by a socket in the file system on to an address.
func (w *world) relayUnix(socket, address string) {
	w.t.Helper()
	proxy := wire.TCP(w.t, address)
	listener, err := net.Listen("unix", socket)
	w.must(err)
	w.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", proxy.Addr)
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1]) // ends with either side
					_ = pair[0].Close()
				}()
			}
		}
	}()
}
