//go:build !unix

package commandline

import "os"

// terminalWidth is unknown here.
func terminalWidth(*os.File) int { return 0 }
