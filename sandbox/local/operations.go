package local

// Operation is the name of the purpose of a request to the cloud's API. Requests with different
// versions of a path have the same operation. A request to a sandbox about its files, commands or
// code has no operation.
type Operation string

// These are the operations on sandboxes.
const (
	OpCreateSandbox      Operation = "CreateSandbox"
	OpListSandboxes      Operation = "ListSandboxes"
	OpGetSandbox         Operation = "GetSandbox"
	OpKillSandbox        Operation = "KillSandbox"
	OpConnectSandbox     Operation = "ConnectSandbox"
	OpResumeSandbox      Operation = "ResumeSandbox"
	OpSetSandboxTimeout  Operation = "SetSandboxTimeout"
	OpRefreshSandbox     Operation = "RefreshSandbox"
	OpSetSandboxNetwork  Operation = "SetSandboxNetwork"
	OpResizeSandbox      Operation = "ResizeSandbox"
	OpGetSandboxMetrics  Operation = "GetSandboxMetrics"
	OpGetSandboxLogs     Operation = "GetSandboxLogs"
	OpListEvents         Operation = "ListEvents"
	OpListSandboxEvents  Operation = "ListSandboxEvents"
	OpListSandboxMetrics Operation = "ListSandboxMetrics"
	OpPauseSandbox       Operation = "PauseSandbox"
	OpForkSandbox        Operation = "ForkSandbox"
	OpSnapshotSandbox    Operation = "SnapshotSandbox"
)

// These are the operations on snapshots, in addition to [OpSnapshotSandbox].
const (
	OpListSnapshots Operation = "ListSnapshots"
)

// These are the operations on volumes and their files.
const (
	OpListVolumes             Operation = "ListVolumes"
	OpCreateVolume            Operation = "CreateVolume"
	OpGetVolume               Operation = "GetVolume"
	OpDeleteVolume            Operation = "DeleteVolume"
	OpStatVolumeFile          Operation = "StatVolumeFile"
	OpSetVolumeFileAttributes Operation = "SetVolumeFileAttributes"
	OpRemoveVolumeFile        Operation = "RemoveVolumeFile"
	OpListVolumeDir           Operation = "ListVolumeDir"
	OpMakeVolumeDir           Operation = "MakeVolumeDir"
	OpReadVolumeFile          Operation = "ReadVolumeFile"
	OpWriteVolumeFile         Operation = "WriteVolumeFile"
)

// These are the operations on secrets.
const (
	OpListSecrets  Operation = "ListSecrets"
	OpCreateSecret Operation = "CreateSecret"
	OpGetSecret    Operation = "GetSecret"
	OpUpdateSecret Operation = "UpdateSecret"
	OpDeleteSecret Operation = "DeleteSecret"
)

// These are the operations on templates, their tags and their builds.
const (
	OpGetTemplateAlias     Operation = "GetTemplateAlias"
	OpListDefaultTemplates Operation = "ListDefaultTemplates"
	OpListTemplates        Operation = "ListTemplates"
	OpRequestBuild         Operation = "RequestBuild"
	OpGetTemplate          Operation = "GetTemplate"
	OpDeleteTemplate       Operation = "DeleteTemplate"
	OpPublishTemplate      Operation = "PublishTemplate"
	OpAssignTags           Operation = "AssignTags"
	OpRemoveTags           Operation = "RemoveTags"
	OpStartBuild           Operation = "StartBuild"
	OpEmptyBuildCache      Operation = "EmptyBuildCache"
	OpListTags             Operation = "ListTags"
	OpCountTags            Operation = "CountTags"
	OpCheckTag             Operation = "CheckTag"
	OpListTagGroups        Operation = "ListTagGroups"
	OpListTagAssignments   Operation = "ListTagAssignments"
	OpGetUpload            Operation = "GetUpload"
	OpGetBuild             Operation = "GetBuild"
	OpGetBuildLogs         Operation = "GetBuildLogs"
	OpUploadFiles          Operation = "UploadFiles"
)

// These are the operations on API keys and teams.
const (
	OpListTeams Operation = "ListTeams"
	OpListKeys  Operation = "ListKeys"
	OpCreateKey Operation = "CreateKey"
	OpRenameKey Operation = "RenameKey"
	OpDeleteKey Operation = "DeleteKey"
)

// These are the operations that only the local cloud has.
const (
	OpGetSpace    Operation = "GetSpace"
	OpGetFeatures Operation = "GetFeatures"
	OpListAsks    Operation = "ListAsks"
	OpAnswerAsk   Operation = "AnswerAsk"
)
