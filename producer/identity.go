package producer

import (
	"context"
	"errors"
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

// readMarkerStore reads the identity anew.
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

// ownMarkers are this producer's markers, with their identity, for a call that names a store. Another database may be
// behind the same address by now: a store that can be bound finds out with each statement. The markers are nil where
// they may not speak for the messages of the call.
func (c *callbacks) ownMarkers(
	ctx context.Context, wanted, id string,
) (own string, markers marker.Store, err error) {
	p := c.producer
	binder, binds := p.config.Markers.(marker.Binder)
	own, err = p.markerStore(ctx)
	if err == nil && wanted != "" && (own != wanted || !binds) {
		own, err = p.readMarkerStore(ctx)
	}
	switch {
	case err != nil:
		return "", nil, c.unavailable(id, err)
	case wanted == "":
		return own, p.config.Markers, nil
	case own != wanted:
		c.complainOfOther(own, wanted, id)
		return own, nil, nil
	case binds:
		return own, binder.Bound(wanted), nil
	}
	return own, p.config.Markers, nil
}

// unavailable is the answer when the marker store fails. The identity is read anew: another database may be there.
func (c *callbacks) unavailable(id string, err error) error {
	p := c.producer
	if errors.Is(err, marker.ErrOtherStore) {
		p.identity.known.Store(nil)
	}
	p.complaints.add(slog.LevelWarn, "the marker store failed; the coordinator will ask again", id, err)
	return status.Errorf(codes.Unavailable, "the marker store of %s is unavailable", p.config.Name)
}

func (c *callbacks) complainOfOther(own, wanted, id string) {
	p := c.producer
	p.complaints.add(slog.LevelWarn, "the coordinator asks about messages of another marker store; they are left alone; "+
		"give all replicas of this producer one database, or this process another name", id,
		fmt.Errorf("the messages name the marker store %s, and this process has %q", wanted, own))
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
