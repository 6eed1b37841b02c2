package cluster

import corev1 "k8s.io/api/core/v1"

// What is kept of each kind of object, by field numbers of generated.proto. A
// conversion that begins to use another field has to be given it here;
// TestNothingUsedIsPruned fails until it is.

// Numbers that most kinds share.
const (
	fieldMeta   = 1
	fieldSpec   = 2
	fieldStatus = 3
)

// keepMeta is namespace, name, UID, generation, the times of making and deletion, and
// the owners.
var keepMeta = message{1: nil, 3: nil, 5: nil, 7: nil, 8: nil, 9: nil, 13: nil}

// keepLabels and keepAnnotations are of ObjectMeta as well: those that a list names.
var (
	keepLabels      = message{11: entries}
	keepAnnotations = message{12: entries}
)

// The labels, annotations and conditions of nodes that are used by themselves; those of pods that selectors
// use come on top.
var (
	podKeys      = []string{labelProfile, AnnotationCapacity, mirrorAnnotation}
	nodeKeys     = []string{labelCompute, labelProfile, labelOldZone, corev1.LabelTopologyZone, string(corev1.NodeReady)}
	workloadKeys = []string{RestartedAtAnnotation, SurgeAnnotation}
	cronJobKeys  = []string{SuspendAnnotation}
)

// keepTemplate is of a pod template its annotations and its priority class.
var keepTemplate = message{fieldMeta: keepAnnotations, fieldSpec: {24: nil}}

// keepCondition is type, status and when it last changed.
var keepCondition = message{1: nil, 2: nil, 4: nil}

var keepPod = message{
	fieldMeta:   both(keepMeta, keepLabels, keepAnnotations),
	fieldSpec:   {3: nil, 10: nil, 19: nil},                                                     // restartPolicy, nodeName, schedulerName
	fieldStatus: {1: nil, 2: keepCondition, 7: nil, 8: message{2: message{3: message{6: nil}}}}, // phase, conditions, startTime, containerStatuses.state.terminated.finishedAt
}

var keepNode = message{
	fieldMeta:   both(keepMeta, keepLabels),
	fieldStatus: {4: entries, 7: message{7: nil}}, // conditions, nodeInfo.kubeletVersion
}

var keepDeployment = message{
	fieldMeta:   both(keepMeta, keepAnnotations),
	fieldSpec:   {1: nil, 3: keepTemplate, 4: nil, 7: nil}, // replicas, template, strategy, paused
	fieldStatus: {1: nil, 2: nil, 3: nil, 7: nil},          // observedGeneration, replicas, updatedReplicas, readyReplicas
}

var keepStatefulSet = message{
	fieldMeta:   both(keepMeta, keepAnnotations),
	fieldSpec:   {1: nil, 3: keepTemplate, 6: nil, 7: nil, 11: nil}, // replicas, template, podManagementPolicy, updateStrategy, ordinals
	fieldStatus: {1: nil, 2: nil, 3: nil, 5: nil},                   // observedGeneration, replicas, readyReplicas, updatedReplicas
}

var keepDaemonSet = message{
	fieldMeta:   both(keepMeta, keepAnnotations),
	fieldSpec:   {2: keepTemplate, 3: nil},                // template, updateStrategy
	fieldStatus: {1: nil, 3: nil, 4: nil, 5: nil, 6: nil}, // current, desired, ready, observedGeneration, updated
}

var keepReplicaSet = message{
	fieldMeta:   both(keepMeta, keepAnnotations),
	fieldSpec:   {1: nil, 3: keepTemplate},
	fieldStatus: {1: nil, 3: nil, 4: nil}, // replicas, observedGeneration, readyReplicas
}

// keepReplicationController: its numbers are those of a ReplicaSet.
var keepReplicationController = keepReplicaSet

var keepJob = message{
	fieldMeta:   keepMeta,
	fieldSpec:   {8: nil, 10: nil},          // ttlSecondsAfterFinished, suspend
	fieldStatus: {1: keepCondition, 4: nil}, // conditions, active
}

var keepCronJob = message{
	fieldMeta: both(keepMeta, keepAnnotations, message{6: nil}),         // and resourceVersion
	fieldSpec: {4: nil, 5: message{2: message{8: nil}}, 6: nil, 7: nil}, // suspend, jobTemplate.spec.ttlSecondsAfterFinished, the limits
}

var keepBudget = message{
	fieldMeta:   keepMeta,
	fieldSpec:   {2: nil},                                 // selector
	fieldStatus: {1: nil, 3: nil, 4: nil, 5: nil, 6: nil}, // observedGeneration, allowed, healthy, desired, expected
}

var keepPriorityClass = message{fieldMeta: keepMeta, 2: nil, 3: nil} // value, globalDefault

// keepWebhooks is name, clientConfig.service and failurePolicy, of both kinds.
var keepWebhooks = message{fieldMeta: keepMeta, 2: message{1: nil, 2: message{1: nil}, 4: nil}}
