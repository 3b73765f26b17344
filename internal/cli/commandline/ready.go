package commandline

import (
	"context"
	"net/http"
	"time"
)

// readyInterval is the time between two questions to a coordinator that is not ready yet.
const readyInterval = 20 * time.Millisecond

// WaitReady waits until the coordinator whose console listens at addr is ready, or the context ends.
func WaitReady(ctx context.Context, addr string) error {
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for !isReady(ctx, addr) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func isReady(ctx context.Context, addr string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
