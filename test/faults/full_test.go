package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// Faults in which Redis has no room.
var fullRows = []row{
	{name: "F23", copies: true, fault: fillMemory},
	{name: "F23_eviction", fault: evict},
	{name: "F25", copies: true, fault: fillDisk},
}

// confirmTimeout bounds a publish that has begun: send.confirm_timeout, as world.start sets it.
const confirmTimeout = 3 * time.Second

// fillMemory lets Redis refuse every call that needs more memory. New messages are refused; stored messages are
// finished, also by a coordinator that starts only now.
func fillMemory(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("Redis' memory is full")
	w.redis.CLI("CONFIG", "SET", "maxmemory", "100kb")
	w.refuses(codes.ResourceExhausted, "STORE_FULL")
	c := w.coordinators[0]
	_ = w.end(c, syscall.SIGKILL) // killed, and exits so
	w.start(c)
	c.Ready(c.http)
	servers.Eventually(w.t, patience, "the older messages are worked off while Redis is full", func() bool {
		underway, ok := w.standing(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE)
		return ok && len(underway) == 0
	})
	w.refuses(codes.ResourceExhausted, "STORE_FULL")
	w.redis.CLI("CONFIG", "SET", "maxmemory", "0")
	w.ledger.Fault("Redis has memory again")
	w.felt("OOM")
	w.allReady()
}

// evict sets a policy that a coordinator refuses at its start. No memory limit is set, so nothing is evicted yet.
func evict(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.redis.CLI("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	w.ledger.Fault("Redis may evict keys")
	w.unready("evicts keys when it is full (maxmemory-policy allkeys-lru)")
	w.redis.CLI("CONFIG", "SET", "maxmemory-policy", "noeviction")
	w.ledger.Fault("Redis may not evict keys")
	w.allReady()
}

// fillDisk lets Redis write nothing to its disk, so that Redis refuses every write.
func fillDisk(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("Redis' disk is full")
	w.redis.FillDisk()
	w.unready("MISCONF")
	w.refuses(codes.Unavailable, "STORE_UNAVAILABLE")
	wait(confirmTimeout) // messages claimed before are published, or given up
	before := w.published("acked")
	wait(5 * time.Second)
	if after := w.published("acked"); after != before {
		w.t.Errorf("%d messages were published, and could not be claimed", after-before)
	}
	w.redis.FreeDisk()
	w.ledger.Fault("Redis' disk has room again")
	w.felt("MISCONF")
	w.allReady()
}

// refuses demands that a half message gets that answer, with the reason and the advice to try again. The call is made
// once, without the SDK, and not rolled back.
func (w *world) refuses(code codes.Code, reason string) {
	w.t.Helper()
	conn, err := grpc.NewClient(w.coordinators[1].grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	_, err = pb.NewMessageHandlerServiceClient(conn).SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
		Producer: "refused", CallbackTarget: "127.0.0.1:1", ConfirmAfter: durationpb.New(time.Hour),
		Message: &pb.Message{Id: "1", Exchange: exchange, RoutingKey: "refused", Body: []byte("refused")},
	})
	got := status.Convert(err)
	w.ledger.Fault("a half message is answered with " + got.Code().String())
	says := func(detail any) bool {
		info, is := detail.(*errdetails.ErrorInfo)
		return is && info.GetReason() == reason
	}
	advises := func(detail any) bool {
		info, is := detail.(*errdetails.RetryInfo)
		return is && info.GetRetryDelay().AsDuration() > 0
	}
	details := got.Details()
	if got.Code() != code || !slices.ContainsFunc(details, says) || !slices.ContainsFunc(details, advises) {
		w.t.Errorf("a half message got %v %v, want %v, %s and when to try again", err, details, code, reason)
	}
}
