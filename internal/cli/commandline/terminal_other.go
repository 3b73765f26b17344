//go:build !unix

package commandline

import (
	"errors"
	"os"
)

// terminalSize is unknown here.
func terminalSize(*os.File) (width, height int) { return 0, 0 }

// singleKeys is not possible here.
func singleKeys(*os.File) (end func(), err error) { return nil, errors.ErrUnsupported }
