package commandline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// FindProgram returns the path of another program of this release: beside the running executable, or else in PATH.
func FindProgram(name string) (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the directory of this program: %w", err)
	}
	if beside, err := exec.LookPath(filepath.Join(filepath.Dir(executable), name)); err == nil {
		return beside, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither beside %s nor in PATH: install %s there (make build makes all programs)",
		name, executable, name)
}
