package producer

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// identity is that of the marker store, once it is known.
type identity struct{ known atomic.Pointer[string] }

// markerStore is the identity of the marker store, which is read once.
func (p *Producer) markerStore(ctx context.Context) (string, error) {
	if known := p.identity.known.Load(); known != nil {
		return *known, nil
	}
	return p.readMarkerStore(ctx)
}

// readMarkerStore reads the identity anew: another database may be behind the same address by now.
func (p *Producer) readMarkerStore(ctx context.Context) (store string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.MarkerTimeout)
	defer cancel()
	err = guard(func() (err error) {
		store, err = p.config.Markers.Identity(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	p.identity.known.Store(&store)
	return store, nil
}

// namedStore is the store that half messages name. Markers that end with the process cannot be waited for.
func (p *Producer) namedStore() string {
	known := p.identity.known.Load()
	if known == nil || !p.can.SurvivesRestart {
		return ""
	}
	return *known
}

// ownStore is the identity of this producer's markers. may reports whether the markers may speak for the messages of a
// call that names a store. A final question plants tombstones, so ownStore reads the identity anew.
func (c *callbacks) ownStore(
	ctx context.Context, wanted string, final bool, id string,
) (own string, may bool, err error) {
	p := c.producer
	read := p.markerStore
	if final {
		read = p.readMarkerStore
	}
	if own, err = read(ctx); err != nil {
		p.complaints.add(slog.LevelWarn, "the marker store failed; the coordinator will ask again", id, err)
		return "", false, status.Errorf(codes.Unavailable, "the marker store of %s is unavailable", p.config.Name)
	}
	if wanted == "" || own == wanted {
		return own, true, nil
	}
	p.complaints.add(slog.LevelWarn, "the coordinator asks about messages of another marker store; they are left alone; "+
		"give all replicas of this producer one database, or this process another name", id,
		fmt.Errorf("the messages name the marker store %s, and this process has %q", wanted, own))
	return own, false, nil
}

// foreign is the answer about messages of another marker store.
func foreign(own string, ids []string) *pb.ConfirmResponse {
	response := &pb.ConfirmResponse{MarkerStore: own}
	for _, id := range ids {
		response.Confirmations = append(response.Confirmations,
			&pb.Confirmation{Id: id, Verdict: pb.Verdict(marker.Unavailable)})
	}
	return response
}
