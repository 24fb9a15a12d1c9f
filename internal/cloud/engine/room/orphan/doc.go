// Package orphan ends orphans: processes that outlived their parents and became children of a
// subreaper. It is needed where no namespace ends such processes.
package orphan
